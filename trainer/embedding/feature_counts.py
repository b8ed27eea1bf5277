"""What an engine has looked up, by feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.embedding.spec import FeatureSpec

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class FeatureCounts:
    """What an engine has looked up of one feature since it began.

    Attributes:
        batches: batches that were trained.
        ids: ids in all of them.
        longest_bag: the most ids of an event.
        distinct_rows: the sum over batches of the distinct rows of the feature's *table*.
    """

    batches: int = 0
    ids: int = 0
    longest_bag: int = 0
    distinct_rows: int = 0


class BatchCounter:
    """Counts trained batches of ``features``; ``table_of``: the table of each feature."""

    def __init__(self, features: Sequence[FeatureSpec], table_of: Array) -> None:
        self._names, self._table_of = tuple(feature.name for feature in features), table_of
        self._counts = np.zeros((len(features), 4), np.int64)

    def add(self, offsets: Array, distinct_rows: Array) -> None:
        """Add a batch with these bags and distinct rows of each table."""
        self._counts[:, 0] += 1
        self._counts[:, 1] += offsets[:, -1] - offsets[:, 0]
        longest = np.diff(offsets, axis=1).max(axis=1, initial=0)
        np.maximum(self._counts[:, 2], longest, out=self._counts[:, 2])
        self._counts[:, 3] += distinct_rows[self._table_of]

    def by_feature(self) -> dict[str, FeatureCounts]:
        """The counts of each feature, by name."""
        return {name: FeatureCounts(*counts.tolist()) for name, counts in zip(self._names, self._counts, strict=True)}
