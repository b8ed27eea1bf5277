"""What every engine checks of a batch before it reads a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.errors import BadBatch
from trainer.tables.batches import IdBatch
from trainer.tables.spec import FeatureSpec
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_BAD_OFFSETS, _BAD_ID = 1, 2
#: The types of ids.
ID_TYPES = (np.dtype(np.int32), np.dtype(np.int64))


def check_batch(batch: IdBatch, features: Sequence[FeatureSpec]) -> None:
    """Raise :class:`BadBatch` for arrays of other types or shapes, offsets that do not fit, and ids outside their tables."""
    ids, offsets = batch.ids, batch.offsets
    if ids.dtype not in ID_TYPES or offsets.dtype != np.int64 or ids.ndim != 1 or offsets.ndim != 2:
        raise BadBatch("ids must be int32 or int64, offsets int64 [features, events + 1]",
                       value=(str(ids.dtype), str(offsets.dtype), offsets.shape))  # fmt: skip
    if batch.weights is not None and (batch.weights.shape != ids.shape or batch.weights.dtype != np.float32):
        raise BadBatch("a weighted batch must have a float32 weight for every id", value=(str(batch.weights.dtype),
                       batch.weights.shape), allowed=f"float32 {ids.shape}")  # fmt: skip
    if offsets.shape[0] != len(features) or offsets.shape[1] < 1:
        raise BadBatch("a batch must have offsets for every feature", value=offsets.shape[0],
                       allowed=str(len(features)))  # fmt: skip
    bounds = tuple(feature.table.vocabulary_size for feature in features)
    if batch.bounds == bounds:
        return
    problem, f, at = find_problem(ids, offsets, np.array(bounds, np.int64))
    if problem == _BAD_ID:
        raise _bad_id(features[f], int(ids[at]))
    if problem == _BAD_OFFSETS:
        raise BadBatch("offsets must ascend from the end of the previous feature to the number of ids",
                       where=f"feature {features[f].name}, event {at}", value=int(offsets[f, at]))  # fmt: skip


@compiled
def find_problem(ids: Array, offsets: Array, bounds: Array) -> tuple[int, int, int]:
    """(0, 0, 0) if every offset and id is in range, else (_BAD_OFFSETS or _BAD_ID, feature, position)."""
    features, ends = offsets.shape
    expected = 0
    for f in range(features):
        if offsets[f, 0] != expected:
            return _BAD_OFFSETS, f, 0
        for b in range(1, ends):
            if offsets[f, b] < offsets[f, b - 1]:
                return _BAD_OFFSETS, f, b
        expected = offsets[f, ends - 1]
        if expected > len(ids):
            return _BAD_OFFSETS, f, ends - 1
        for i in range(offsets[f, 0], expected):
            if ids[i] < 0 or ids[i] >= bounds[f]:
                return _BAD_ID, f, i
    if expected != len(ids):
        return _BAD_OFFSETS, features - 1, ends - 1
    return 0, 0, 0


def _bad_id(feature: FeatureSpec, value: int) -> BadBatch:
    return BadBatch(
        "an embedding id must lie in its table",
        where=f"feature {feature.name}, table {feature.table.name}",
        value=value,
        allowed=f"[0, {feature.table.vocabulary_size})",
        next_step="hash the input into buckets (.hash_buckets(n)) or give the table more rows",
    )
