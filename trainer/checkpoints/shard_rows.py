"""Cut the changed rows of a table into the shards of a plan, and join them again, bit for bit. Pure.

A shard holds its slice's columns of the weights and of each slot with a value a column. A slot with one value a row goes with the
first slice. A replicated table is held once, by its first core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.checkpoints.merge_tables import merge_rows, merge_values
from trainer.checkpoints.parted_arrays import Array
from trainer.errors import TornCheckpoint
from trainer.planning.plan import Shard, Slice, TablePlan


@dataclass(frozen=True, slots=True)
class RowsOfTable:
    """Changed rows of a table or of a shard of it: ``rows`` (int64, ascending), and [rows, :] arrays.

    ``slots``: the values of all slots, one slot after the other; for each slot a flag says whether it is row-wise, with one value a row.
    """

    rows: Array
    weights: Array
    slots: Array


def stored_shards(table: TablePlan) -> tuple[Shard, ...]:
    """The shards of a table that a checkpoint holds, slice after slice."""
    shards = tuple(table.shards())
    return shards[:1] if table.is_replicated else shards


def slot_places(row_wise: Sequence[bool], columns: int, slice_: Slice) -> Array:
    """The columns that go with a slice, ascending, among those of all slots of a table with ``columns`` columns."""
    places: list[int] = []
    start = 0
    for is_row_wise in row_wise:
        if is_row_wise:
            places += [start] if slice_.first_column == 0 else []
        else:
            first = start + slice_.first_column
            places += range(first, first + slice_.columns)
        start += 1 if is_row_wise else columns
    return np.array(places, np.int64)


def is_in_shard(rows: Array, table: TablePlan, shard: Shard) -> Array:
    """Which of some rows a shard holds."""
    slice_, place = shard.slice_, shard.place
    if table.is_replicated:
        return np.full(len(rows), place == 0)
    if slice_.row_ends:
        first = slice_.row_ends[place - 1] if place else 0
        block: Array = (rows >= first) & (rows < slice_.row_ends[place])
        return block
    cyclic: Array = rows % len(slice_.cores) == place
    return cyclic


def cut_shard(state: RowsOfTable, table: TablePlan, shard: Shard, row_wise: Sequence[bool]) -> RowsOfTable:
    """The rows and columns of a shard among those of a table, or of some of its rows."""
    at = np.flatnonzero(is_in_shard(state.rows, table, shard))
    first = shard.slice_.first_column
    weights = state.weights[at, first : first + shard.slice_.columns]
    return RowsOfTable(
        state.rows[at], weights, state.slots[np.ix_(at, slot_places(row_wise, table.columns, shard.slice_))]
    )


def join_shards(shards: Sequence[RowsOfTable], table: TablePlan, row_wise: Sequence[bool]) -> RowsOfTable:
    """The changed rows of a table, ascending; ``shards``: in the order of :func:`stored_shards`.

    Raises :class:`TornCheckpoint` unless each shard holds rows and columns of its own, and all slices the same rows.
    """
    where = f"table {table.name}"
    kept = stored_shards(table)
    if len(shards) != len(kept):
        raise TornCheckpoint("a table must have all shards of its plan", where=where, value=len(shards), allowed=str(len(kept)))  # fmt: skip
    for shard, state in zip(kept, shards, strict=True):
        _check_shard(state, table, shard, row_wise)
    slices = [
        _join_rows([state for shard, state in zip(kept, shards, strict=True) if shard.slice_ == one], where)
        for one in table.slices
    ]
    rows = slices[0].rows
    if any(not np.array_equal(rows, one.rows) for one in slices):
        raise TornCheckpoint("all slices of a table must hold the same rows, got different ones", where=where)
    if len(slices) == 1:
        return slices[0]
    width = sum(1 if is_row_wise else table.columns for is_row_wise in row_wise)
    joined = np.empty((len(rows), width), slices[0].slots.dtype)
    for one, state in zip(table.slices, slices, strict=True):
        joined[:, slot_places(row_wise, table.columns, one)] = state.slots
    return RowsOfTable(rows, np.concatenate([one.weights for one in slices], axis=1), joined)


def _join_rows(shards: Sequence[RowsOfTable], where: str) -> RowsOfTable:
    rows, places = merge_rows([one.rows for one in shards], where)
    weights = merge_values(places, len(rows), lambda k: shards[k].weights, where)
    return RowsOfTable(rows, weights, merge_values(places, len(rows), lambda k: shards[k].slots, where))


def _check_shard(state: RowsOfTable, table: TablePlan, shard: Shard, row_wise: Sequence[bool]) -> None:
    where = f"table {table.name}, core {shard.core}"
    found = (state.weights.shape, state.slots.shape)
    expected = (
        (len(state.rows), shard.slice_.columns),
        (len(state.rows), len(slot_places(row_wise, table.columns, shard.slice_))),
    )
    if found != expected:
        raise TornCheckpoint("a shard must have the columns of its slice", where=where, value=found, allowed=str(expected))  # fmt: skip
    in_table = (state.rows >= 0) & (state.rows < table.rows)
    if not (in_table & is_in_shard(state.rows, table, shard)).all():
        raise TornCheckpoint("a shard must hold rows of its own, got others", where=where)
