"""What an engine has looked up, by feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.planning.valencies import VALENCY_BOUNDS
from trainer.tables.spec import FeatureSpec
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_NONE: Final = (0,) * len(VALENCY_BOUNDS)
#: The classes of short bags, which most are.
_CLASSES: Final = np.searchsorted(VALENCY_BOUNDS, np.arange(64))
_BATCHES, _IDS, _LONGEST, _DISTINCT = range(4)


@dataclass(frozen=True, slots=True)
class FeatureCounts:
    """What an engine has looked up of one feature since it began.

    Attributes:
        batches: batches that were trained.
        ids: ids in all of them.
        longest_bag: the most ids of an event.
        distinct_rows: the sum over batches of the distinct rows of the feature's *table*.
        bags_by_valency: bags of each class of :data:`VALENCY_BOUNDS`.
        ids_by_valency: the ids of these bags.
    """

    batches: int = 0
    ids: int = 0
    longest_bag: int = 0
    distinct_rows: int = 0
    bags_by_valency: tuple[int, ...] = _NONE
    ids_by_valency: tuple[int, ...] = _NONE


class BatchCounter:
    """Counts trained batches of ``features``; ``table_of``: the table of each feature."""

    def __init__(self, features: Sequence[FeatureSpec], table_of: Array) -> None:
        self._names, self._table_of = tuple(feature.name for feature in features), table_of
        self._counts = np.zeros((len(features), 4), np.int64)
        self._valencies = np.zeros((2, len(features), len(VALENCY_BOUNDS)), np.int64)

    def add(self, offsets: Array, distinct_rows: Array) -> None:
        """Add a batch with these bags and distinct rows of each table."""
        count_batch(offsets, distinct_rows, self._table_of, self._counts, self._valencies)

    def by_feature(self) -> dict[str, FeatureCounts]:
        """The counts of each feature, by name."""
        bags, ids = self._valencies.tolist()
        found = {}
        for f, name in enumerate(self._names):
            batches, total, longest, distinct = self._counts[f].tolist()
            found[name] = FeatureCounts(batches, total, longest, distinct, tuple(bags[f]), tuple(ids[f]))
        return found


@compiled
def count_batch(offsets: Array, distinct_rows: Array, table_of: Array, counts: Array, valencies: Array) -> None:
    """Add a batch to the counts of each feature, and to its bags and their ids in each class of valencies.

    ``offsets``: int64 [features, events + 1]; ``distinct_rows``: of each table.
    """
    for f in range(offsets.shape[0]):
        counts[f, _BATCHES] += 1
        counts[f, _IDS] += offsets[f, offsets.shape[1] - 1] - offsets[f, 0]
        counts[f, _DISTINCT] += distinct_rows[table_of[f]]
    count_bags(offsets, counts[:, _LONGEST], valencies[0], valencies[1])


@compiled
def count_bags(offsets: Array, longest: Array, bags: Array, ids: Array) -> None:
    """Count the bags of each feature in their classes of valencies; ``offsets``: int64 [features, events + 1]."""
    for f in range(offsets.shape[0]):
        for b in range(offsets.shape[1] - 1):
            size = offsets[f, b + 1] - offsets[f, b]
            longest[f] = max(longest[f], size)
            valency = _CLASSES[min(size, _CLASSES.shape[0] - 1)]
            while (1 << valency) >> 1 < size:
                valency += 1
            bags[f, valency] += 1
            ids[f, valency] += size
