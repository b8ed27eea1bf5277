"""What a worker asks a tower for as a message between peers, and batches cut and joined by towers and hosts.

A message has the ids, feature after feature; the length of each bag of tables that are sent as bags; the number of events with the rows of
each table, -1 of one that is sent as bags (:mod:`~trainer.tables.routes.towers.tower_layout`); and the ids' weights if they have any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trainer.tables.batches import IdBatch
from trainer.tables.routes.towers.tower_layout import AS_BAGS, TowerLayout
from transforms.arrays import Array
from transforms.errors import DataError

#: The most events of a message: one without bags names them without having them.
_MOST_EVENTS = 1 << 22
_ID_TYPES = (np.dtype(np.int32), np.dtype(np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class TowerPart:
    """What a worker asks one tower for.

    Attributes:
        batch: the bags of the tower's features; those of tables that are sent as rows have these rows.
        rows: int64, of each table the rows by which it is sent, or :data:`~trainer.tables.routes.towers.tower_layout.AS_BAGS`.
    """

    batch: IdBatch
    rows: Array


def bags_of(batch: IdBatch, chosen: Sequence[int]) -> IdBatch:
    """The bags of the features at the positions ``chosen`` of a batch whose offsets were checked."""
    parts = [slice(int(batch.offsets[f, 0]), int(batch.offsets[f, -1])) for f in chosen]
    return joined_batch(
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
    return joined_batch([one.ids[part] for one, part in parts], lengths, weights, bounds)


def joined_batch(
    ids: Sequence[Array], lengths: Array, weights: Sequence[Array] | None, bounds: tuple[int, ...] | None
) -> IdBatch:
    """A batch of these pieces, feature after feature; ``lengths``: [features, events]."""
    ends = np.cumsum(lengths.sum(axis=1))
    offsets = np.empty((lengths.shape[0], lengths.shape[1] + 1), np.int64)
    offsets[:, 0] = np.concatenate([[0], ends[:-1]])
    offsets[:, 1:] = offsets[:, :1] + np.cumsum(lengths, axis=1)
    return IdBatch(np.concatenate(ids), offsets, None if weights is None else np.concatenate(weights), bounds)


def to_message(part: TowerPart, layout: TowerLayout) -> list[Array]:
    """The arrays of a part, each of one dimension."""
    batch = part.batch
    lengths = np.diff(batch.offsets, axis=1)[layout.are_bags(part.rows)].astype(np.int32).ravel()
    shape = np.array([batch.rows, *part.rows], np.int32)
    return [batch.ids, lengths, shape, *(() if batch.weights is None else (batch.weights,))]


def from_message(message: Sequence[Array], layout: TowerLayout, where: str) -> TowerPart:
    """The part of a message to the tower of ``layout``. Raises :class:`DataError` for arrays that do not fit together.

    The sender has checked the ids, and this side does it again where it reads rows. ``where``: names the sender.
    """
    if not 3 <= len(message) <= 4:
        raise DataError("a message of bags must have ids, lengths, a shape and perhaps weights", where=where, value=f"{len(message)} arrays", allowed="3 or 4")  # fmt: skip
    ids, lengths, shape = message[:3]
    weights = message[3] if len(message) == 4 else None
    if (
        ids.dtype not in _ID_TYPES
        or lengths.dtype != np.int32
        or shape.dtype != np.int32
        or any(one.ndim != 1 for one in message)
    ):
        raise DataError("a message of bags must hold ids, int32 lengths and an int32 shape", where=where, value=f"{ids.dtype}, {lengths.dtype}, {shape.dtype}",
                        allowed="int32 or int64, int32, int32")  # fmt: skip
    events, rows = _checked_shape(shape, layout, where)
    are_bags = layout.are_bags(rows)
    bags = int(are_bags.sum()) * events
    if (
        len(lengths) != bags
        or (bags and lengths.min() < 0)
        or int(lengths.sum(dtype=np.int64)) + int(np.maximum(rows, 0).sum()) != len(ids)
    ):
        raise DataError("the lengths of bags and the rows must add up to the number of ids", where=where, value=f"{len(lengths)} lengths, {len(ids)} ids",
                        allowed=f"{bags} lengths >= 0, whose sum with the rows is the number of ids")  # fmt: skip
    if weights is not None and (weights.dtype != np.float32 or weights.shape != ids.shape):
        raise DataError("the weights of ids must be float32, one for each id", where=where, value=f"{weights.dtype} {weights.shape}",
                        allowed=f"float32 {ids.shape}")  # fmt: skip
    all_lengths = layout.folded_lengths(rows, events)
    all_lengths[are_bags] = lengths.reshape(-1, events) if events else 0
    if len(ids) and not _are_inside(ids, all_lengths, layout.bounds):
        raise DataError("an id of a message must lie in its table", where=where, value=(int(ids.min()), int(ids.max())),
                        allowed=f"[0, {max(layout.bounds)})")  # fmt: skip
    return TowerPart(joined_batch([ids], all_lengths, None if weights is None else [weights], layout.bounds), rows)


def _checked_shape(shape: Array, layout: TowerLayout, where: str) -> tuple[int, Array]:
    """The events and the rows of a message. Raises :class:`DataError` for rows that have no places in its events."""
    tables = len(layout.tables)
    if len(shape) != 1 + tables or not 0 <= shape[0] <= _MOST_EVENTS:
        raise DataError("the shape of a message must be its events and the rows of each table", where=where, value=f"{len(shape)} numbers, first {shape[:1]}",
                        allowed=f"{1 + tables} numbers, the first from 0 to {_MOST_EVENTS}")  # fmt: skip
    events, rows = int(shape[0]), shape[1:].astype(np.int64)
    if (rows < AS_BAGS).any() or (rows > layout.places(events)).any():
        raise DataError("the rows of a table must have places in its bags", where=where, value=rows.tolist(),
                        allowed=f"{AS_BAGS} to {layout.places(events).tolist()}")  # fmt: skip
    return events, rows


def _are_inside(ids: Array, lengths: Array, bounds: tuple[int, ...]) -> bool:
    ends = np.concatenate([[0], np.cumsum(lengths.sum(axis=1, dtype=np.int64))])
    parts = [ids[first:stop] for first, stop in pairwise(ends)]
    return all(not len(part) or (part.min() >= 0 and part.max() < bound) for part, bound in zip(parts, bounds, strict=True))  # fmt: skip
