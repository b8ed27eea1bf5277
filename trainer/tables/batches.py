"""Bags of ids, as readers make them and engines look them up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class IdBatch:
    """Bags of ids for every feature of an engine, in its order. The arrays must not change afterwards.

    Attributes:
        ids: int32 or int64, all features concatenated.
        offsets: int64 [features, events + 1]; the bag of feature f and event b is
            ``ids[offsets[f, b]:offsets[f, b + 1]]``.
        weights: float32 per id, or None if all are 1; sums and means are those of ``tf.nn.embedding_lookup_sparse`` with
            ``sp_weights``.
        bounds: set if the batch was checked: offsets ascend from 0 to the number of ids, and the ids of feature f lie in
            ``[0, bounds[f])``.
    """

    ids: Array
    offsets: Array
    weights: Array | None = None
    bounds: tuple[int, ...] | None = None

    @property
    def rows(self) -> int:
        """Events, padding included."""
        return int(self.offsets.shape[1]) - 1


def part_of(batch: IdBatch, first: int, stop: int) -> IdBatch:
    """The events from ``first`` up to ``stop`` of a batch whose offsets were checked, as a batch of their own."""
    ends = batch.offsets[:, [first, stop]]
    sizes = ends[:, 1] - ends[:, 0]
    shifts = np.cumsum(sizes) - sizes - ends[:, 0]

    def taken(values: Array) -> Array:
        return np.concatenate([values[low:high] for low, high in ends.tolist()])

    return IdBatch(
        taken(batch.ids),
        batch.offsets[:, first : stop + 1] + shifts[:, None],
        None if batch.weights is None else taken(batch.weights),
        batch.bounds,
    )


def used_ids(ends: Array, length: int) -> Array:
    """Positions, among the ids of one feature, of those that are looked up: of a sequence, the first ``length`` of each event.

    ``ends``: where the feature's bags begin and end; ``length``: 0 for a feature whose bags are combined.
    """
    count = int(ends[-1] - ends[0])
    if not length:
        return np.arange(count)
    in_bag = np.arange(count) - np.repeat(ends[:-1] - ends[0], np.diff(ends))
    found: Array = np.flatnonzero(in_bag < length)
    return found


def id_dtype(bounds: tuple[int, ...]) -> type[np.int32] | type[np.int64]:
    """The type of ids below these bounds: the smaller they are, the less memory is moved."""
    return np.int32 if max(bounds, default=0) <= 2**31 else np.int64
