"""Samples the statistics of features from a share of the batches that are trained."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from trainer.planning.feature_statistics import RESIDUES, FeatureStatistics
from trainer.planning.valencies import VALENCY_BOUNDS
from trainer.tables.batches import IdBatch
from trainer.tables.feature_counts import count_bags
from trainer.tables.spec import FeatureSpec
from trainer.tables.statistics.row_sketch import IdCounter, RowSketch


def is_sampled(seed: int, step: int, share: float) -> bool:
    """Whether the batch of a step is sampled: the same on every host and engine."""
    digest = hashlib.blake2b(f"{seed}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2.0**64


class BatchSampler:
    """The statistics of ``features`` over ``share`` of the batches; ``seed`` picks them."""

    def __init__(self, features: Sequence[FeatureSpec], *, share: float, seed: int) -> None:
        self._features, self._share, self._seed = tuple(features), share, seed
        self._counters = {rows: IdCounter(rows) for rows in {feature.table.vocabulary_size for feature in features}}
        self._begin()

    def _begin(self) -> None:
        features = len(self._features)
        self._events = self._batches = 0
        self._longest = np.zeros(features, np.int64)
        self._valencies = np.zeros((2, features, len(VALENCY_BOUNDS)), np.int64)
        self._distinct = np.zeros((2, features), np.int64)  # the sum, and the most of a batch
        self._residues = np.zeros((features, RESIDUES), np.int64)
        self._sketches: list[RowSketch] = []

    def add(self, step: int, batch: IdBatch, events: int) -> None:
        """Add the batch of a step, if it is sampled; only the first ``events`` of it are no padding."""
        if not is_sampled(self._seed, step, self._share):
            return
        if not self._sketches:
            self._sketches = [RowSketch(feature.table.vocabulary_size) for feature in self._features]
        offsets = batch.offsets[:, : events + 1]
        self._events += events
        self._batches += 1
        count_bags(offsets, self._longest, self._valencies[0], self._valencies[1])
        for f, sketch in enumerate(self._sketches):
            rows, counts = self._counters[self._features[f].table.vocabulary_size].count(
                batch.ids[offsets[f, 0] : offsets[f, -1]]
            )
            self._distinct[0, f] += len(rows)
            self._distinct[1, f] = max(self._distinct[1, f], len(rows))
            sketch.add(rows, counts, self._residues[f])

    def take(self) -> dict[str, FeatureStatistics]:
        """The statistics since the last call, by feature; none if no batch was sampled."""
        if not self._batches:
            return {}
        found = {feature.name: self._statistics(f) for f, feature in enumerate(self._features)}
        self._begin()
        return found

    def _statistics(self, f: int) -> FeatureStatistics:
        bags, ids = self._valencies[:, f]
        return FeatureStatistics(
            events=float(self._events),
            batches=float(self._batches),
            ids=float(ids.sum()),
            longest_bag=int(self._longest[f]),
            bags_by_valency=tuple(bags.astype(float).tolist()),
            ids_by_valency=tuple(ids.astype(float).tolist()),
            distinct_rows=float(self._distinct[0, f]),
            most_distinct_rows=int(self._distinct[1, f]),
            ids_by_residue=tuple(self._residues[f].astype(float).tolist()),
            frequencies=self._sketches[f].frequencies(),
            sample=self._sketches[f].sample(),
        )
