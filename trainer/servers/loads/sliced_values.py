"""The columns that a server has of a table, from slices of columns that others have or have saved. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.checkpoints.shard_rows import ColumnRange, cut_columns, joined_columns, slots_of_slices
from trainer.errors import TornCheckpoint
from transforms.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class SliceValues:
    """The values of rows in some columns of their table.

    Attributes:
        columns: which they are.
        weights: float32 [rows, columns].
        slots: float32 [rows, slots * columns], slot after slot.
    """

    columns: ColumnRange
    weights: Array
    slots: Array


def joined_values(slices: Sequence[SliceValues], wanted: ColumnRange, where: str) -> tuple[Array, Array]:
    """The weights and slots of rows in the wanted columns, each of which is in one of the slices. Raises :class:`TornCheckpoint`."""
    shared, pieces = [], []
    for one in slices:
        own = one.columns.shared_with(wanted)
        assert own is not None, "other slices are not read"
        shared.append(own)
        pieces.append(_cut(one, own, where))
    if len(pieces) == 1:
        return pieces[0]
    weights, slots = zip(*pieces, strict=True)
    slots_of_slices(shared, [one.shape[1] for one in weights], where)
    each = slots_of_slices(shared, [one.shape[1] for one in slots], where)
    return joined_columns(weights, 1), joined_columns(slots, each)


def _cut(found: SliceValues, own: ColumnRange, where: str) -> tuple[Array, Array]:
    """Some of the columns of a slice."""
    columns, weights, slots = found.columns, found.weights, found.slots
    if own.columns == columns.columns:
        return weights, slots
    if weights.shape[1] != columns.columns or slots.shape[1] % columns.columns:
        raise TornCheckpoint("a slice must have a value of each slot for each of its columns", where=where,
                             value=(weights.shape[1], slots.shape[1]), allowed=f"{columns.columns} columns")  # fmt: skip
    cut = cut_columns(weights, 1, own), cut_columns(slots, slots.shape[1] // columns.columns, own)
    return np.ascontiguousarray(cut[0]), np.ascontiguousarray(cut[1])
