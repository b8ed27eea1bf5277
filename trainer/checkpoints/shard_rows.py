"""Which rows and columns of a table each shard of a partition plan holds in a checkpoint. Pure.

A shard holds its slice's columns of the weights and of each slot. A replicated table is held once, by its first core. A table that
the plan does not name is spread over all cores by its rows, row r on core ``r % cores``, as over the hosts of a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainer.errors import TornCheckpoint
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from transforms.arrays import Array

#: The rows, weights and slots of a table, or of a shard.
TableArrays = tuple[Array, Array, Array]

#: The kind of tables that a plan names; linear tables have the names of embedding tables. What these tables have by rows beside their own
#: is of the kinds ``embedding-...``, on the cores of the rows.
EMBEDDING = "embedding"


class Columns(Protocol):
    """Some columns of a table."""

    @property
    def first_column(self) -> int:
        """The first one."""

    @property
    def columns(self) -> int:
        """Their number."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """Some columns of a table: the first one, and their number."""

    first_column: int
    columns: int

    @property
    def stop(self) -> int:
        """The column after the last one."""
        return self.first_column + self.columns

    def shared_with(self, other: ColumnRange) -> ColumnRange | None:
        """The columns of both, counted from the first one of this range; None without any."""
        first, stop = max(self.first_column, other.first_column), min(self.stop, other.stop)
        return ColumnRange(first - self.first_column, stop - first) if first < stop else None


def plan_of_table(plan: PartitionPlan, kind: str, table: str) -> TablePlan | None:
    """The plan of a table, or of its section by rows; None for one that is spread over all cores by its rows."""
    is_planned = kind.partition("-")[0] == EMBEDDING
    return next((one for one in plan.tables if one.name == table), None) if is_planned else None


def table_slices(plan: PartitionPlan, kind: str, table: str) -> tuple[Slice, ...]:
    """The slices of a table, each with the cores that hold it in a checkpoint."""
    found = plan_of_table(plan, kind, table)
    if found is None:
        return (Slice(0, 0, tuple(range(plan.cores))),)
    return tuple(
        Slice(one.first_column, one.columns, one.cores[:1]) if found.is_replicated else one for one in found.slices
    )


def places_of(rows: Array, slice_: Slice) -> Array:
    """For each row the place of its core among those of a slice."""
    if slice_.row_ends:
        return np.searchsorted(np.array(slice_.row_ends, np.int64), rows, side="right")
    places: Array = rows % len(slice_.cores)
    return places


def check_in_shard(rows: Array, slice_: Slice, place: int, where: str) -> None:
    """Raises :class:`TornCheckpoint` unless all rows belong to the shard at a place of a slice."""
    if len(rows) and (rows.min() < 0 or (places_of(rows, slice_) != place).any()):
        raise TornCheckpoint("a shard must hold rows of its own, got others", where=where)


def slots_of_slices(slices: Sequence[Columns], widths: Sequence[int], where: str) -> int:
    """How many slots a table has, by the slot values of a row in each slice. Raises :class:`TornCheckpoint` if these do not fit."""
    slots = widths[0] // slices[0].columns
    expected = [slots * one.columns for one in slices]
    if list(widths) != expected:
        raise TornCheckpoint("a slice must have a value of each slot for each of its columns", where=where,
                             value=list(widths)[:8], allowed=str(expected[:8]))  # fmt: skip
    return slots


def joined_columns(values: Sequence[Array], slots: int) -> Array:
    """The values of whole rows from those of their slices: ``slots`` values a column, slot after slot."""
    rows = len(values[0])
    cubes = [one.reshape(rows, slots, one.shape[1] // slots if slots else 0) for one in values]
    joined: Array = np.concatenate(cubes, axis=2)
    return joined.reshape(rows, slots * joined.shape[2])


def cut_columns(values: Array, slots: int, slice_: Columns) -> Array:
    """The values of a slice from those of whole rows; the inverse of :func:`joined_columns`."""
    rows = len(values)
    cube = values.reshape(rows, slots, values.shape[1] // slots if slots else 0)
    stop = slice_.first_column + slice_.columns
    cut: Array = cube[:, :, slice_.first_column : stop].reshape(rows, slots * slice_.columns)
    return cut


def shard_of(whole: TableArrays, planned: TablePlan, number: int, place: int, where: str) -> TableArrays:
    """The shard at a place of slice ``number``, from the arrays of a whole table; of a replicated table, all rows.

    Raises :class:`TornCheckpoint` for rows beyond those of the plan, and slots that cannot be cut.
    """
    rows, weights, slots = whole
    if len(rows) and rows[-1] >= planned.rows:
        raise TornCheckpoint("a saved table must have the rows of its plan, got more", where=where, value=int(rows[-1]),
                             allowed=f"less than {planned.rows}")  # fmt: skip
    one = planned.slices[number]
    if not planned.is_replicated:
        kept = places_of(rows, one) == place
        rows, weights, slots = rows[kept], weights[kept], slots[kept]
    if len(planned.slices) == 1:
        return rows, weights, slots
    width = weights.shape[1]
    if width != planned.columns or slots.shape[1] % width:
        raise TornCheckpoint("a saved table must have the columns of its plan, with a value of each slot for each", where=where,
                             value=f"{width} columns, {slots.shape[1]} slot values", allowed=f"{planned.columns} columns")  # fmt: skip
    return rows, cut_columns(weights, 1, one), cut_columns(slots, slots.shape[1] // width, one)
