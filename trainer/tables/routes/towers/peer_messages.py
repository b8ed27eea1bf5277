"""The bags of a tower's features as a message between peers, and batches cut and joined by towers and hosts.

A message has the ids, the length of each bag, feature after feature, and the ids' weights if they have any.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from trainer.tables.batches import IdBatch
from transforms.arrays import Array
from transforms.errors import DataError

_ID_TYPES = (np.dtype(np.int32), np.dtype(np.int64))


def bags_of(batch: IdBatch, chosen: Sequence[int]) -> IdBatch:
    """The bags of the features at the positions ``chosen`` of a batch whose offsets were checked."""
    parts = [slice(int(batch.offsets[f, 0]), int(batch.offsets[f, -1])) for f in chosen]
    return _joined(
        [batch.ids[part] for part in parts],
        np.diff(batch.offsets[list(chosen)], axis=1),
        None if batch.weights is None else [batch.weights[part] for part in parts],
        None if batch.bounds is None else tuple(batch.bounds[f] for f in chosen),
    )


def join_events(batches: Sequence[IdBatch]) -> IdBatch:
    """The events of all batches of the same features, batch after batch; weighted if one of them is."""
    if len(batches) == 1:
        return batches[0]
    features = batches[0].offsets.shape[0]
    parts = [(one, slice(int(one.offsets[f, 0]), int(one.offsets[f, -1]))) for f in range(features) for one in batches]
    weights = None
    if any(one.weights is not None for one in batches):
        weights = [np.ones(part.stop - part.start, np.float32) if one.weights is None else one.weights[part] for one, part in parts]  # fmt: skip
    lengths = np.concatenate([np.diff(one.offsets, axis=1) for one in batches], axis=1)
    bounds = batches[0].bounds if all(one.bounds == batches[0].bounds for one in batches) else None
    return _joined([one.ids[part] for one, part in parts], lengths, weights, bounds)


def _joined(
    ids: Sequence[Array], lengths: Array, weights: Sequence[Array] | None, bounds: tuple[int, ...] | None
) -> IdBatch:
    """A batch of these pieces, feature after feature; ``lengths``: [features, events]."""
    ends = np.cumsum(lengths.sum(axis=1))
    offsets = np.empty((lengths.shape[0], lengths.shape[1] + 1), np.int64)
    offsets[:, 0] = np.concatenate([[0], ends[:-1]])
    offsets[:, 1:] = offsets[:, :1] + np.cumsum(lengths, axis=1)
    return IdBatch(np.concatenate(ids), offsets, None if weights is None else np.concatenate(weights), bounds)


def to_message(batch: IdBatch) -> list[Array]:
    """The arrays of a batch, each of one dimension."""
    lengths = np.diff(batch.offsets, axis=1).astype(np.int32).ravel()
    return [batch.ids, lengths, *(() if batch.weights is None else (batch.weights,))]


def from_message(message: Sequence[Array], features: int, bounds: tuple[int, ...], where: str) -> IdBatch:
    """The batch of a message of ``features`` features. Raises :class:`DataError` for arrays that do not fit together.

    The sender has checked the ids, and this side does it again where it reads rows. ``where``: names the sender.
    """
    if not 2 <= len(message) <= 3:
        raise DataError("a message of bags must have ids, lengths and perhaps weights", where=where, value=f"{len(message)} arrays", allowed="2 or 3")  # fmt: skip
    ids, lengths = message[0], message[1]
    weights = message[2] if len(message) == 3 else None
    if ids.dtype not in _ID_TYPES or lengths.dtype != np.int32 or any(one.ndim != 1 for one in message):
        raise DataError("a message of bags must hold ids and int32 lengths", where=where, value=f"{ids.dtype}, {lengths.dtype}",
                        allowed="int32 or int64, int32")  # fmt: skip
    if len(lengths) % features or (len(lengths) and lengths.min() < 0) or int(lengths.sum(dtype=np.int64)) != len(ids):
        raise DataError("the lengths of bags must add up to the number of ids", where=where, value=f"{len(lengths)} lengths, {len(ids)} ids",
                        allowed=f"lengths >= 0 of the bags of {features} features, whose sum is the number of ids")  # fmt: skip
    if weights is not None and (weights.dtype != np.float32 or weights.shape != ids.shape):
        raise DataError("the weights of ids must be float32, one for each id", where=where, value=f"{weights.dtype} {weights.shape}",
                        allowed=f"float32 {ids.shape}")  # fmt: skip
    if len(ids) and not _are_inside(ids, lengths.reshape(features, -1), bounds):
        raise DataError("an id of a message must lie in its table", where=where, value=(int(ids.min()), int(ids.max())),
                        allowed=f"[0, {max(bounds)})")  # fmt: skip
    return _joined([ids], lengths.reshape(features, -1), None if weights is None else [weights], bounds)


def _are_inside(ids: Array, lengths: Array, bounds: tuple[int, ...]) -> bool:
    ends = np.concatenate([[0], np.cumsum(lengths.sum(axis=1, dtype=np.int64))])
    parts = [ids[first:stop] for first, stop in pairwise(ends)]
    return all(not len(part) or (part.min() >= 0 and part.max() < bound) for part, bound in zip(parts, bounds, strict=True))  # fmt: skip
