"""From a batch of bags to the ragged inputs of one replica: views of the batch's buffers, no Python lists. Pure.

What an id counts for (its gain) is computed here, as the ``cpu`` engine computes it, and TensorFlow sums: so both engines combine alike,
also where weights add up to 0, and the ids of a sequence have their own weights whatever the combiner of their table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.tables.batches import IdBatch, used_ids
from trainer.tables.spec import FeatureSpec, TableSpec
from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class RaggedInput:
    """The bags of one feature on one replica.

    Attributes:
        ids: int32 or int64, as in the batch.
        splits: int64, where each bag begins, and where the last one ends.
        gains: float32, what each id counts for.
    """

    ids: Array
    splits: Array
    gains: Array


def bags_of(feature: FeatureSpec, events: int) -> int:
    """Bags of a feature in so many events: an id of a sequence is a bag of its own."""
    return events * max(feature.max_sequence_length, 1)


def distinct_rows(batch: IdBatch, features: Sequence[FeatureSpec], tables: Sequence[TableSpec]) -> Array:
    """The distinct rows of each table that a step of a (checked) batch updates, int64."""
    ids: dict[str, list[Array]] = {table.name: [] for table in tables}
    for feature, ends in zip(features, batch.offsets, strict=True):
        own = batch.ids[ends[0] : ends[-1]]
        ids[feature.table.name].append(own[used_ids(ends, feature.max_sequence_length)])
    return np.array([len(np.unique(np.concatenate(parts))) for parts in ids.values()], np.int64)


def replica_inputs(batch: IdBatch, features: Sequence[FeatureSpec], replica: int, events: int) -> list[RaggedInput]:
    """The inputs of a replica, which has the ``events`` from ``replica * events`` on of a (checked) batch."""
    first = replica * events
    found = []
    for feature, ends in zip(features, batch.offsets, strict=True):
        of_replica = ends[first : first + events + 1]
        ids = batch.ids[of_replica[0] : of_replica[-1]]
        weights = None if batch.weights is None else batch.weights[of_replica[0] : of_replica[-1]]
        splits = of_replica - of_replica[0]
        if feature.max_sequence_length:
            found.append(_sequence(ids, splits, weights, feature.max_sequence_length))
        else:
            found.append(RaggedInput(ids, splits, gains_of(feature.table.combiner, splits, weights)))
    return found


def gains_of(combiner: str, splits: Array, weights: Array | None) -> Array:
    """What each id counts for; 0 for the ids of a bag whose weights add up to 0."""
    lengths = np.diff(splits)
    if combiner == "sum":
        return np.ones(splits[-1], np.float32) if weights is None else weights
    if weights is None:
        norms = lengths.astype(np.float32) if combiner == "mean" else np.sqrt(lengths.astype(np.float32))
        of_bags = np.divide(np.float32(1), norms, out=np.zeros_like(norms), where=norms != 0)
        return np.repeat(of_bags, lengths)
    norms = _sums(weights if combiner == "mean" else weights * weights, splits)
    if combiner == "sqrtn":
        norms = np.sqrt(norms)
    repeated = np.repeat(norms, lengths)
    shares: Array = np.divide(weights, repeated, out=np.zeros_like(weights), where=repeated != 0)
    return shares


def _sums(values: Array, splits: Array) -> Array:
    """The sum of each bag, float32; 0 for an empty one."""
    sums = np.zeros(len(splits) - 1, np.float32)
    filled = np.diff(splits) > 0
    if filled.any():
        sums[filled] = np.add.reduceat(values, splits[:-1][filled])
    return sums


def _sequence(ids: Array, splits: Array, weights: Array | None, length: int) -> RaggedInput:
    """The first ``length`` ids of each event, each a bag of its own; empty bags follow a shorter event."""
    lengths = np.diff(splits)
    places = np.arange(len(ids)) - np.repeat(splits[:-1], lengths)
    kept = places < length
    is_there = np.arange(length) < lengths[:, None]
    own_splits = np.concatenate([[0], np.cumsum(is_there.ravel())]).astype(np.int64)
    gains = np.ones(own_splits[-1], np.float32) if weights is None else weights[kept]
    return RaggedInput(ids[kept], own_splits, gains)
