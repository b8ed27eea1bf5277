"""Forecast of the requests of memos by the age of their data, and how long storing a memo pays. Pure.

On the day data arrives, every model that is trained daily reads it; later only new models read it. So reads are counted by the
age of the data at the time of the read, in the buckets of :data:`AGE_DAYS`. The requests of a component's memo are

    reads a day of data of this age, by any model  *  the share of those reads by models that contain the component.

The first is known soon, since every read of the table counts; the second is close to the share of live models.
The first starts from a guess that counts as :data:`PRIOR_DAYS` of observation: a live model reads everything
:data:`PRIOR_READS_PER_DAY` times a day, and old data is not read more often than younger data.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from transforms.errors import InputError

__all__ = [
    "AGE_DAYS",
    "DAY_SECS",
    "NO_HOLD",
    "AgedReads",
    "Arrival",
    "Hold",
    "TimedRead",
    "best_hold",
    "bucket_of",
    "count_reads",
    "spans",
]

#: The ages in days at which the buckets start. Decisions are made again once a day, so none is shorter.
AGE_DAYS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
#: The assumed reads of all data by a live model, until reads are observed.
PRIOR_READS_PER_DAY = 1.0
#: The days of observation that the assumption is worth.
PRIOR_DAYS = 0.5
#: The reads after which a model's own rate counts as much as the mean of all models.
_PRIOR_EVENTS = 2.0
DAY_SECS = 86_400.0


def bucket_of(age_days: float) -> int:
    """The bucket of an age; a negative age, by a clock that was set back, counts as 0."""
    return max(bisect_right(AGE_DAYS, age_days) - 1, 0)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Rows that arrived at one time, in a partition that starts at ``start_at``; times are epoch seconds."""

    start_at: float
    arrived_at: float
    rows: int


@dataclass(frozen=True, slots=True)
class TimedRead:
    """A read by a model of the partitions that start in ``[start_at, end_at)``; times are epoch seconds."""

    model: str
    start_at: float
    end_at: float
    read_at: float


@dataclass(frozen=True)
class AgedReads:
    """Reads of a table by the age of the data, and the time for which data of that age was observed.

    Attributes:
        days: By bucket, days of observation of a day's arrivals.
        reads: By bucket, their reads by all models, live or not.
        by_model: The number of reads of a bucket by each live model; live models without reads are in it too.
        live_days: The days of observation of each live model.
        first_reads: By the day of arrival, since the epoch, the reads of its data on that day.
    """

    days: tuple[float, ...] = (0.0,) * len(AGE_DAYS)
    reads: tuple[float, ...] = (0.0,) * len(AGE_DAYS)
    by_model: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    live_days: Mapping[str, float] = field(default_factory=dict)
    first_reads: Mapping[int, float] = field(default_factory=dict)

    def bucket(self, arrived_at: float, now: float) -> int:
        """The bucket of data; on its first day, once half of the expected reads have come, that of the next day."""
        bucket = bucket_of((now - arrived_at) / DAY_SECS)
        expected = self.reads_per_day[0] * (AGE_DAYS[1] - AGE_DAYS[0])
        is_read = self.first_reads.get(int(arrived_at // DAY_SECS), 0.0) >= max(expected / 2, 1.0)
        return 1 if bucket == 0 and is_read else bucket

    @cached_property
    def reads_per_day(self) -> tuple[float, ...]:
        """The expected reads a day of data of each bucket, by any model."""
        assumed = max(len(self.by_model), 1) * PRIOR_READS_PER_DAY
        rates: list[float] = []
        for days, reads in zip(self.days, self.reads, strict=True):
            prior = min(assumed, rates[-1]) if rates else assumed
            rates.append((reads + PRIOR_DAYS * prior) / (days + PRIOR_DAYS))
        return tuple(rates)

    def share(self, models: Collection[str], bucket: int) -> float:
        """The share of the coming reads of a bucket that some live models make."""
        return self._shares(models)[bucket]

    def _shares(self, models: Collection[str]) -> Sequence[float]:
        if not self.by_model:
            return [1.0] * len(AGE_DAYS)
        known = [self._rates[name] for name in sorted(models) if name in self._rates]
        return [sum(rates) for rates in zip(*known, strict=True)] or [0.0] * len(AGE_DAYS)

    @cached_property
    def _rates(self) -> Mapping[str, Sequence[float]]:
        """By live model and bucket, its part of the expected reads: a Gamma posterior around the mean of all models."""
        rates: dict[str, list[float]] = {name: [] for name in self.by_model}
        observed = sum(self.live_days.get(name, 0.0) for name in self.by_model)
        for bucket in range(len(AGE_DAYS)):
            counted = {name: reads[bucket] for name, reads in self.by_model.items()}
            reads = sum(counted.values())
            prior_days = _PRIOR_EVENTS * observed / reads if reads else math.inf
            found = {
                name: 1.0
                if math.isinf(prior_days)
                else (own + _PRIOR_EVENTS) / max(self.live_days.get(name, 0.0) + prior_days, 1e-9)
                for name, own in counted.items()
            }
            whole = sum(found.values())
            for name, rate in found.items():
                rates[name].append(rate / whole)
        return rates

    def requests_per_day(self, models: Collection[str]) -> tuple[float, ...]:
        """By bucket, the expected requests a day of a memo whose component these live models contain."""
        return tuple(rate * share for rate, share in zip(self.reads_per_day, self._shares(models), strict=True))


def count_reads(
    arrivals: Iterable[Arrival], reads: Iterable[TimedRead], live: Mapping[str, float], now: float, since: float
) -> AgedReads:
    """Count reads from ``since`` to ``now`` by the age of the data. Rows that arrived on one day count as one whole.

    ``live``: when each live model was first submitted.
    """
    # Only rows of current data are counted, for reads and for time, so that both speak of the same rows.
    whole: dict[tuple[int, float], float] = {}
    for one in arrivals:
        key = int(one.arrived_at // DAY_SECS), one.start_at
        whole[key] = whole.get(key, 0.0) + one.rows
    arrived: dict[int, float] = {}
    for (day, _), rows in whole.items():
        arrived[day] = arrived.get(day, 0.0) + rows
    mean_rows = sum(arrived.values()) / len(arrived) if arrived else 1.0
    days = [0.0] * len(AGE_DAYS)
    for day, rows in arrived.items():
        for bucket, spent in enumerate(_days_in_buckets(day * DAY_SECS, since, now)):
            days[bucket] += spent * rows / max(mean_rows, 1.0)
    by_model = {name: [0.0] * len(AGE_DAYS) for name in live}
    total = [0.0] * len(AGE_DAYS)
    covered: dict[tuple[float, float, int], list[float]] = {}
    first_reads: dict[int, float] = {}
    for read in reads:
        question = read.start_at, read.end_at, int(read.read_at // DAY_SECS)
        if question not in covered:
            covered[question] = _covered(whole, *question, mean_rows)
        day = question[-1]
        if day in arrived and covered[question][0]:
            first_reads[day] = first_reads.get(day, 0.0) + covered[question][0] * mean_rows / arrived[day]
        for bucket, part in enumerate(covered[question]):
            total[bucket] += part
            if read.model in by_model:
                by_model[read.model][bucket] += part > 0
    live_days = {name: max(now - max(first, since), 0.0) / DAY_SECS for name, first in live.items()}
    return AgedReads(
        tuple(days), tuple(total), {name: tuple(found) for name, found in by_model.items()}, live_days, first_reads
    )


def _days_in_buckets(arrived_at: float, since: float, now: float) -> list[float]:
    """The days that data spent in each bucket between ``since`` and ``now``."""
    first, last = max((since - arrived_at) / DAY_SECS, 0.0), (now - arrived_at) / DAY_SECS
    ends = (*AGE_DAYS[1:], math.inf)
    return [max(min(last, end) - max(first, start), 0.0) for start, end in zip(AGE_DAYS, ends, strict=True)]


def _covered(
    whole: Mapping[tuple[int, float], float], start_at: float, end_at: float, day: int, mean_rows: float
) -> list[float]:
    """The rows that a read covers, by bucket, in days of arrivals."""
    found = [0.0] * len(AGE_DAYS)
    for (arrived, start), rows in whole.items():
        if arrived <= day and start_at <= start < end_at:
            found[bucket_of(day - arrived)] += rows / max(mean_rows, 1.0)
    return found


@dataclass(frozen=True, slots=True)
class Hold:
    """The time for which storing a memo is expected to pay.

    Attributes:
        days: The time; 0 if storing it does not pay.
        requests: The expected requests in it.
        saved_secs: What they save, less the storage, in the unit of the given prices.
    """

    days: float
    requests: float
    saved_secs: float


NO_HOLD = Hold(0.0, 0.0, 0.0)


def best_hold(
    requests_per_day: Sequence[float], bucket: int, *, saving_secs: float, day_secs: float, horizon_days: float
) -> Hold:
    """The time, up to the horizon, over which requests save most beyond the price of storage.

    ``bucket``: that of the data's age now. ``saving_secs``: computing less loading, for one request; ``day_secs``: storing for a day.
    The time ends where a bucket ends, and is the longest of equal ones.
    """
    best, held, requests = NO_HOLD, 0.0, 0.0
    for part, days in spans(bucket, horizon_days):
        held += days
        requests += requests_per_day[part] * days
        saved = requests * saving_secs - held * day_secs
        if saved > 0 and saved >= best.saved_secs:
            best = Hold(held, requests, saved)
    return best


@cache
def spans(bucket: int, horizon_days: float) -> tuple[tuple[int, float], ...]:
    """The buckets of the next ``horizon_days``, each with its days; data counts as being at the start of its bucket.

    Raises :class:`InputError` for a horizon that is not a finite number > 0.
    """
    if not (horizon_days > 0 and math.isfinite(horizon_days)):
        raise InputError("horizon_days must be a finite number > 0", value=horizon_days, allowed="> 0")
    first = AGE_DAYS[bucket]
    starts, ends = AGE_DAYS[bucket:], (*AGE_DAYS[bucket + 1 :], math.inf)
    parts = (
        (part, min(end, first + horizon_days) - start)
        for part, (start, end) in enumerate(zip(starts, ends, strict=True), bucket)
    )
    return tuple((part, days) for part, days in parts if days > 0)
