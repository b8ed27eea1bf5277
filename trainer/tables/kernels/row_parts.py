"""Rows of several tables in messages: read them for an answer, write them, and join those of several senders, table after table."""

from __future__ import annotations

import numpy as np

from trainer.tables.kernels.initial_rows import initialise_row
from trainer.tables.kernels.layout import Bags, TableLayout, TableValues
from trainer.tables.kernels.vectors import LANES, load, prefetch, store
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined

#: How many rows ahead one is asked for: those of so many values, but no fewer and no more than so many rows.
_AHEAD_FLOATS, _LEAST_AHEAD, _MOST_AHEAD = 512, 8, 32
_ZERO = np.float32(0.0)


@inlined
def copy_row(source: Array, first: int, target: Array, at: int, dim: int) -> None:
    """Copy the ``dim`` values of a row between flat float32 arrays."""
    whole = dim - dim % LANES
    for d in range(0, whole, LANES):
        store(target, at + d, load(source, first + d))
    for d in range(whole, dim):
        target[at + d] = source[first + d]


@inlined
def ask_for(values: Array, first: int, dim: int) -> None:
    """Bring a row into the cache."""
    for d in range(0, dim, LANES):
        prefetch(values, first + d)


@inlined
def rows_ahead(dim: int) -> int:
    """How many rows ahead one of so many columns is asked for."""
    return min(max(_AHEAD_FLOATS // dim, _LEAST_AHEAD), _MOST_AHEAD)


@compiled
def read_weights(bags: Bags, tables: TableLayout, values: TableValues, out: Array) -> None:
    """As :func:`read_rows`, of weights, where rows that were never read get their initial values.

    The last weight of such a row is zero, so that other rows need no look at their states.
    """
    ids, offsets, _ = bags
    at = 0
    for t in range(offsets.shape[0]):
        dim, base, stop = tables.dims[t], tables.weight_base[t], offsets[t, 1]
        ahead = rows_ahead(dim)
        for i in range(offsets[t, 0], stop):
            if i + ahead < stop:
                ask_for(values.weights, base + ids[i + ahead] * dim, dim)
            first = base + ids[i] * dim
            if values.weights[first + dim - 1] == _ZERO and values.row_state[tables.row_base[t] + ids[i]] == 0:
                initialise_row(t, ids[i], tables, values)
            copy_row(values.weights, first, out, at, dim)
            at += dim


@compiled
def read_rows(bags: Bags, tables: TableLayout, weights: Array, out: Array) -> None:
    """The weights of the ids of a batch with one feature a table and one event, one after the other."""
    ids, offsets, _ = bags
    at = 0
    for t in range(offsets.shape[0]):
        dim, base, stop = tables.dims[t], tables.weight_base[t], offsets[t, 1]
        ahead = rows_ahead(max(dim, 1))
        for i in range(offsets[t, 0], stop):
            if i + ahead < stop:
                ask_for(weights, base + ids[i + ahead] * dim, dim)
            copy_row(weights, base + ids[i] * dim, out, at, dim)
            at += dim


@compiled
def write_rows(bags: Bags, tables: TableLayout, values: Array, target: Array) -> None:
    """The inverse of :func:`read_rows`: write ``values`` to the rows of ``target``."""
    ids, offsets, _ = bags
    at = 0
    for t in range(offsets.shape[0]):
        dim, base = tables.dims[t], tables.weight_base[t]
        for i in range(offsets[t, 0], offsets[t, 1]):
            copy_row(values, at, target, base + ids[i] * dim, dim)
            at += dim


@compiled
def join_parts(rows: Array, counts: Array, floats: Array, dims: Array) -> tuple[Array, Array, Array]:
    """The rows of all parts, their numbers by table, and their floats, table after table and in each the parts in order.

    Args:
        rows: of the parts, one part after the other, each table after table.
        counts: int64 [parts, tables], their numbers.
        floats: the values of each row, in the same order.
        dims: the values of a row of each table.
    """
    parts, tables = counts.shape
    totals = np.zeros(tables, np.int64)
    for p in range(parts):
        totals += counts[p]
    joined, values = np.empty_like(rows), np.empty_like(floats)
    row_starts, float_starts = np.zeros(tables, np.int64), np.zeros(tables, np.int64)
    for t in range(1, tables):
        row_starts[t] = row_starts[t - 1] + totals[t - 1]
        float_starts[t] = float_starts[t - 1] + totals[t - 1] * dims[t - 1]
    row, first = 0, 0
    for p in range(parts):
        for t in range(tables):
            size, width = counts[p, t], counts[p, t] * dims[t]
            joined[row_starts[t] : row_starts[t] + size] = rows[row : row + size]
            values[float_starts[t] : float_starts[t] + width] = floats[first : first + width]
            row_starts[t] += size
            float_starts[t] += width
            row += size
            first += width
    return joined, totals, values
