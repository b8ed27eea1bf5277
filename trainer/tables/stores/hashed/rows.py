"""The loops that move values between messages of ids and places."""

from __future__ import annotations

from trainer.tables.kernels.initial_rows import initial_weights
from trainer.tables.kernels.layout import TableLayout
from trainer.tables.kernels.row_parts import ask_for, copy_row
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

#: How many rows ahead one is asked for.
_AHEAD = 8


@compiled
def read_weights(ids: Array, starts: Array, places: Array, tables: TableLayout, weights: Array, out: Array) -> None:
    """The weights of ids, one row after the other; the initial ones of an id without a place."""
    at = 0
    for t in range(len(starts) - 1):
        dim, base, stop = tables.dims[t], tables.weight_base[t], starts[t + 1]
        for k in range(starts[t], stop):
            if k + _AHEAD < stop:
                ask_for(weights, base + max(places[k + _AHEAD], 0) * dim, dim)
            if places[k] >= 0:
                copy_row(weights, base + places[k] * dim, out, at, dim)
            else:
                initial_weights(t, ids[k], tables, out, at)
            at += dim


@compiled
def select_placed(
    starts: Array, places: Array, dims: Array, values: Array, rows: Array, counts: Array, out: Array
) -> int:
    """Leave out what has no place: write the places, their numbers by table, and their values; returns the number of values."""
    at, used, row = 0, 0, 0
    for t in range(len(starts) - 1):
        before = row
        for k in range(starts[t], starts[t + 1]):
            if places[k] >= 0:
                rows[row] = places[k]
                copy_row(values, at, out, used, dims[t])
                used += dims[t]
                row += 1
            at += dims[t]
        counts[t] = row - before
    return used
