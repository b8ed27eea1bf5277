"""The statistics of a feature, sampled from batches that were trained. Immutable; no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from trainer.errors import ConfigError
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.row_sample import NO_SAMPLE, RowSample
from trainer.planning.valencies import VALENCY_BOUNDS
from transforms.derived_documents import Later

#: Ids are counted by the row modulo this number.
RESIDUES: Final = 64
#: After so many sampled events the weight of an old sample has halved.
HALF_LIFE_EVENTS: Final = 10_000_000.0
#: The largest sum of a sample.
_MOST: Final = 2.0**62


@dataclass(frozen=True, slots=True)
class FeatureStatistics:
    """What batches of a feature hold. Sums are aged: those of older samples count less. Raises :class:`ConfigError` for impossible sums.

    Attributes:
        events, batches, ids: those of the sample.
        longest_bag: the most ids of an event, ever.
        bags_by_valency: bags of each class of :data:`~trainer.planning.valencies.VALENCY_BOUNDS`.
        ids_by_valency: the ids of these bags.
        distinct_rows: the sum over batches of the distinct rows of a batch.
        most_distinct_rows: the most of a batch, ever.
        ids_by_residue: the ids whose row is 0, 1, … modulo :data:`RESIDUES`.
        frequencies: the share of each row.
        sample: rows with the exact ids of each, from which the rows that no batch had are estimated.
        version: counts the samples that were merged.
    """

    events: float
    batches: float
    ids: float
    longest_bag: int
    bags_by_valency: tuple[float, ...]
    ids_by_valency: tuple[float, ...]
    distinct_rows: float
    most_distinct_rows: int
    ids_by_residue: tuple[float, ...]
    frequencies: RowFrequencies
    sample: Later[RowSample] = NO_SAMPLE
    version: int = 1

    def __post_init__(self) -> None:
        lengths = len(self.bags_by_valency), len(self.ids_by_valency), len(self.ids_by_residue)
        if lengths != _LENGTHS:
            raise ConfigError(
                f"statistics must have {_LENGTHS} sums of valencies and residues, got {lengths}", value=lengths
            )
        sums = (self.events, self.batches, self.ids, self.distinct_rows,
                *self.bags_by_valency, *self.ids_by_valency, *self.ids_by_residue)  # fmt: skip
        if not all(0.0 <= one <= _MOST for one in sums):
            raise ConfigError("the sums of statistics must be numbers", value=[one for one in sums if not 0.0 <= one <= _MOST][:4],
                              allowed=f"[0, {_MOST:.0f}]")  # fmt: skip
        if not (self.events > 0.0 and self.batches > 0.0):
            raise ConfigError("statistics must have events", value=(self.events, self.batches), allowed="> 0")
        if self.version < 1 or self.longest_bag < 0 or self.most_distinct_rows < 0:
            raise ConfigError(
                "statistics must have a version, and counts of at least 0",
                value=(self.version, self.longest_bag, self.most_distinct_rows),
            )

    @property
    def mean_valency(self) -> float:
        """Ids of an event."""
        return self.ids / self.events

    @property
    def mean_distinct_rows(self) -> float:
        """Distinct rows of a batch."""
        return self.distinct_rows / self.batches

    @property
    def batch_events(self) -> float:
        """Events of a batch."""
        return self.events / self.batches

    @property
    def imbalance(self) -> float:
        """The most ids of a residue over their mean: 1 if all are equal, and for a feature without ids."""
        total = math.fsum(self.ids_by_residue)
        return max(self.ids_by_residue) * len(self.ids_by_residue) / total if total else 1.0


_LENGTHS: Final = len(VALENCY_BOUNDS), len(VALENCY_BOUNDS), RESIDUES


def aged_merge(
    old: FeatureStatistics, new: FeatureStatistics, half_life_events: float = HALF_LIFE_EVENTS
) -> FeatureStatistics:
    """Both samples; the weight of the old one halves with every ``half_life_events`` sampled events of the new one."""
    if not 0.0 < half_life_events < math.inf:
        raise ConfigError("a half-life must be a number of events", value=half_life_events, allowed="> 0")
    kept = 0.5 ** (new.events / half_life_events)
    return _merged(old, new, kept, old.version + 1, is_same_time=False)


def pooled(samples: Sequence[FeatureStatistics]) -> FeatureStatistics:
    """Samples of one time, such as those of several hosts, as one: none is older than another."""
    if not samples:
        raise ConfigError("pooled statistics need at least one sample", value=0, allowed=">= 1")
    return reduce(lambda one, other: _merged(one, other, 1.0, one.version, is_same_time=True), samples)


def _merged(
    old: FeatureStatistics, new: FeatureStatistics, kept: float, version: int, *, is_same_time: bool
) -> FeatureStatistics:
    """Both, with the sums of the old one times ``kept``."""
    return FeatureStatistics(
        events=kept * old.events + new.events,
        batches=kept * old.batches + new.batches,
        ids=kept * old.ids + new.ids,
        longest_bag=max(old.longest_bag, new.longest_bag),
        bags_by_valency=_aged_sum(kept, old.bags_by_valency, new.bags_by_valency),
        ids_by_valency=_aged_sum(kept, old.ids_by_valency, new.ids_by_valency),
        distinct_rows=kept * old.distinct_rows + new.distinct_rows,
        most_distinct_rows=max(old.most_distinct_rows, new.most_distinct_rows),
        ids_by_residue=_aged_sum(kept, old.ids_by_residue, new.ids_by_residue),
        frequencies=_merged_frequencies(old, new, kept),
        sample=old.sample.merged(new.sample, kept, is_same_time=is_same_time),
        version=version,
    )


def _merged_frequencies(old: FeatureStatistics, new: FeatureStatistics, kept: float) -> RowFrequencies:
    if not new.ids:
        return old.frequencies
    return old.frequencies.merged(new.frequencies, kept * old.ids, new.ids)


def _aged_sum(kept: float, old: Sequence[float], new: Sequence[float]) -> tuple[float, ...]:
    return tuple(kept * one + other for one, other in zip(old, new, strict=True))
