"""How late updates are for the rows that are looked up: which of the missed updates are those of the same rows.

A lookup that misses the updates of t steps misses an update of a row only if the row is in the batch of that step. Persia (Lian et al., KDD
2022, arXiv:2111.05897, section 4) bounds the loss of asynchrony by the staleness times the largest share of events that have one id, its alpha; here
both are measured on the data of the run, from one of :data:`SAMPLED_LOOKUPS` lookups. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np

from trainer.tables.batches import IdBatch
from transforms.arrays import Array

#: One lookup of so many is measured.
SAMPLED_LOOKUPS = 32
_PREFIX = "sampled rows: "


@dataclass(frozen=True, slots=True)
class RowDelay:
    """Counts over sampled lookups.

    Attributes:
        ids: that were looked up.
        overlapping: of these, those whose row was also in the batch before.
        missed: updates of the rows of these ids by steps that the lookup missed; a row counts once for each of its ids.
        events: that have an id, of these lookups.
        frequent: of these, those that have the row that most events of their batch have.
    """

    ids: int = 0
    overlapping: int = 0
    missed: int = 0
    events: int = 0
    frequent: int = 0

    @property
    def overlap(self) -> float:
        """The share of looked-up ids whose row was in the batch before; 0.0 without ids."""
        return self.overlapping / max(self.ids, 1)

    @property
    def mean(self) -> float:
        """The updates of its own row that a looked-up id missed: the effective delay; 0.0 without ids."""
        return self.missed / max(self.ids, 1)

    @property
    def most_frequent(self) -> float:
        """The share of events that have the most frequent row of their batch: Persia's alpha, by batch; 0.0 without events."""
        return self.frequent / max(self.events, 1)

    def __add__(self, other: RowDelay) -> RowDelay:
        return RowDelay(
            self.ids + other.ids,
            self.overlapping + other.overlapping,
            self.missed + other.missed,
            self.events + other.events,
            self.frequent + other.frequent,
        )

    def to_numbers(self) -> dict[str, float]:
        """The figures of a role's progress, by name."""
        return {f"{_PREFIX}{name}": float(count) for name, count in asdict(self).items() if count}

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, float]) -> RowDelay:
        """The inverse of :meth:`to_numbers`; other figures are ignored."""
        found = cls(*(int(numbers.get(f"{_PREFIX}{one.name}", 0)) for one in fields(cls)))
        overlapping, frequent = min(found.overlapping, found.ids), min(found.frequent, found.events)
        return replace(found, overlapping=overlapping, frequent=frequent)


#: Of no lookups.
NO_DELAY = RowDelay()


def measure_delay(tables: Sequence[str], batch: IdBatch, before: IdBatch | None, missed: Sequence[IdBatch]) -> RowDelay:
    """The delay of one lookup.

    Args:
        tables: the table of each feature; features that share one share its rows.
        batch: that is looked up.
        before: the batch before it; None for the first one.
        missed: the batches of the steps whose updates the lookup misses.
    """
    found = NO_DELAY
    for table in dict.fromkeys(tables):
        features = [f for f, one in enumerate(tables) if one == table]
        ids = ids_of(batch, features)
        overlapping, *each = (
            0 if one is None else count_among(ids, np.unique(ids_of(one, features))) for one in (before, *missed)
        )
        found += RowDelay(len(ids), overlapping, sum(each))
    events, frequent = events_of_most_frequent(tables, [batch])
    return replace(found, events=events, frequent=frequent)


def events_of_most_frequent(tables: Sequence[str], batches: Sequence[IdBatch]) -> tuple[int, int]:
    """How many events of batches have an id, and how many of them the row that most have; an event counts once for each of its rows.

    ``tables``: the table of each feature; features that share one share its rows.
    """
    total, most = sum(one.rows for one in batches), 0
    has_ids = np.zeros(total, bool)
    firsts = np.cumsum([0, *(one.rows for one in batches)])
    for table in dict.fromkeys(tables):
        features = [f for f, one in enumerate(tables) if one == table]
        ids = np.concatenate([ids_of(one, features) for one in batches])
        events = np.concatenate(
            [first + _events_of(one, features) for first, one in zip(firsts[:-1], batches, strict=True)]
        )
        has_ids[events] = True
        _, rows = np.unique(ids, return_inverse=True)
        pairs = np.unique(rows * total + events)
        most = max(most, int(np.bincount(pairs // max(total, 1)).max(initial=0)))
    return int(np.count_nonzero(has_ids)), most


def _events_of(batch: IdBatch, features: Sequence[int]) -> Array:
    """The event of each of :func:`ids_of`."""
    events = np.arange(batch.rows)
    return np.concatenate([np.repeat(events, np.diff(batch.offsets[f])) for f in features])


def ids_of(batch: IdBatch, features: Sequence[int]) -> Array:
    """The ids of some features of a batch, one feature after the other."""
    bounds = ((int(batch.offsets[f, 0]), int(batch.offsets[f, -1])) for f in features)
    return np.concatenate([batch.ids[first:stop] for first, stop in bounds])


def count_among(ids: Array, rows: Array) -> int:
    """How many of ``ids`` are among ``rows``, which ascend."""
    if not len(rows):
        return 0
    places = np.minimum(np.searchsorted(rows, ids), len(rows) - 1)
    return int(np.count_nonzero(rows[places] == ids))
