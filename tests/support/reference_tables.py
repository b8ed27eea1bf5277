"""Embedding tables in float64, the slow obvious way: what every engine must compute."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tests.support.optimizer_formulas import reference
from trainer.planning.valencies import VALENCY_BOUNDS
from trainer.tables import CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.feature_counts import FeatureCounts


class ReferenceTables:
    """Tables of ``features`` from the values that are drawn from ``seed`` on."""

    def __init__(self, features: Sequence[FeatureSpec], seed: int) -> None:
        self.features = tuple(features)
        self.tables = {feature.table.name: feature.table for feature in features}
        initial = CpuEngine(features, seed=seed)
        self.weights, self.slots = {}, {}
        self.changed: dict[str, set[int]] = {name: set() for name in self.tables}
        for name, table in self.tables.items():
            rows = np.arange(table.vocabulary_size)
            self.weights[name] = initial.weights_of(name, rows).astype(np.float64)
            starts = [slot.initial for slot in table.optimizer.slots for _ in range(table.dim)]
            self.slots[name] = np.tile(np.array(starts, np.float64), (len(rows), 1))

    def lookup(self, batch: IdBatch) -> np.ndarray:
        """Activations, float64."""
        out = np.zeros((batch.rows, sum(feature.width for feature in self.features)))
        for feature, column, event, ids, shares in self._bags(batch):
            rows = shares[:, None] * self.weights[feature.table.name][ids]
            found = rows.ravel() if feature.max_sequence_length else rows.sum(axis=0)
            out[event, column : column + len(found)] = found
        return out

    def apply_gradients(self, batch: IdBatch, gradients: np.ndarray) -> None:
        """One update of each distinct row."""
        sums: dict[str, dict[int, np.ndarray]] = {name: {} for name in self.tables}
        for feature, column, event, ids, shares in self._bags(batch):
            dim, of_table = feature.table.dim, sums[feature.table.name]
            for k, (row, share) in enumerate(zip(ids.tolist(), shares, strict=True)):
                start = column + (k * dim if feature.max_sequence_length else 0)
                of_table[row] = of_table.get(row, 0.0) + share * gradients[event, start : start + dim].astype(
                    np.float64
                )
        for name, of_table in sums.items():
            self.changed[name] |= set(of_table)
            for row, gradient in of_table.items():
                optimizer = self.tables[name].optimizer
                self.weights[name][row], self.slots[name][row] = reference(
                    optimizer, self.weights[name][row], self.slots[name][row], gradient, optimizer.learning_rate
                )

    def _bags(self, batch: IdBatch):
        """Each bag that is not empty: feature, first column, event, ids, and what each id counts for."""
        column = 0
        weights = np.ones(len(batch.ids)) if batch.weights is None else batch.weights.astype(np.float64)
        for feature, ends in zip(self.features, batch.offsets.tolist(), strict=True):
            for event, (first, last) in enumerate(itertools.pairwise(ends)):
                if feature.max_sequence_length:
                    last = min(last, first + feature.max_sequence_length)
                own = weights[first:last]
                if last > first:
                    yield feature, column, event, batch.ids[first:last], own / _divisor(feature, own)
            column += feature.width


def _divisor(feature: FeatureSpec, weights: np.ndarray) -> float:
    if feature.max_sequence_length:
        return 1.0
    return {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt((weights**2).sum())}[feature.table.combiner]


def counts_of(features: Sequence[FeatureSpec], batches: Sequence[IdBatch]) -> dict[str, FeatureCounts]:
    """The statistics of trained batches."""
    found = {}
    for f, feature in enumerate(features):
        lengths = [int(length) for batch in batches for length in np.diff(batch.offsets[f])]
        classes = [next(k for k, bound in enumerate(VALENCY_BOUNDS) if length <= bound) for length in lengths]
        every = range(len(VALENCY_BOUNDS))
        found[feature.name] = FeatureCounts(
            batches=len(batches),
            ids=sum(lengths),
            longest_bag=max(lengths, default=0),
            distinct_rows=sum(len(_updated_rows(features, batch, feature.table)) for batch in batches),
            bags_by_valency=tuple(classes.count(k) for k in every),
            ids_by_valency=tuple(
                sum(one for one, own in zip(lengths, classes, strict=True) if own == k) for k in every
            ),
        )
    return found


def _updated_rows(features: Sequence[FeatureSpec], batch: IdBatch, table: TableSpec) -> set[int]:
    rows: set[int] = set()
    for feature, ends in zip(features, batch.offsets.tolist(), strict=True):
        if feature.table.name == table.name:
            for first, last in itertools.pairwise(ends):
                rows |= set(batch.ids[first:last][: feature.max_sequence_length or None].tolist())
    return rows
