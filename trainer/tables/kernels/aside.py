"""The loops that keep the rows of a snapshot which training is about to change."""

from __future__ import annotations

import numpy as np

from trainer.tables.kernels.gradients import CHANGED
from trainer.tables.kernels.layout import Bags, TableLayout, TableValues
from transforms.arrays import Array
from transforms.kernels.compiled import compiled


@compiled
def count_aside(
    bags: Bags, table_of: Array, tables: TableLayout, captured: Array, is_aside: Array, row_state: Array
) -> int:
    """At most the floats that :func:`put_aside` adds: rows that occur more than once are counted each time."""
    ids, offsets, _ = bags
    floats = 0
    for f in range(offsets.shape[0]):
        t = table_of[f]
        base, first_row = tables.row_base[t], captured[t]
        width = tables.dims[t] + tables.slot_dims[t]
        for i in range(offsets[f, 0], offsets[f, offsets.shape[1] - 1]):
            row = ids[i]
            if row >= first_row and is_aside[base + row] == 0 and row_state[base + row] == CHANGED:
                floats += width
    return int(floats)


@compiled
def put_aside(
    bags: Bags, table_of: Array, tables: TableLayout, values: TableValues, captured: Array, is_aside: Array, rows: Array,
    was_changed: Array, places: Array, kept: Array, count: int, used: int,
) -> tuple[int, int]:  # fmt: skip
    """Copy the rows of a (checked) batch, from ``captured`` of their table on, that were not put aside; once each.

    ``rows``, ``was_changed`` and ``places`` have space for all ids, ``kept`` for their weights and slots. Rows without changes are
    only noted. Returns the new numbers of rows and of floats.
    """
    ids, offsets, _ = bags
    weights, slots, row_state = values
    for f in range(offsets.shape[0]):
        t = table_of[f]
        base, first_row, dim, slot_dim = tables.row_base[t], captured[t], tables.dims[t], tables.slot_dims[t]
        for i in range(offsets[f, 0], offsets[f, offsets.shape[1] - 1]):
            row = ids[i]
            if row < first_row or is_aside[base + row] != 0:
                continue
            is_aside[base + row] = 1
            rows[count] = base + row
            places[count] = used
            was_changed[count] = row_state[base + row] == CHANGED
            if was_changed[count]:
                start = tables.weight_base[t] + row * dim
                kept[used : used + dim] = weights[start : start + dim]
                used += dim
                start = tables.slot_base[t] + row * slot_dim
                kept[used : used + slot_dim] = slots[start : start + slot_dim]
                used += slot_dim
            count += 1
    return count, used


@compiled
def find_aside(rows: Array, count: int, is_aside: Array, first: int, stop: int) -> Array:
    """The positions, int64 and ascending, of the rows from ``first`` to ``stop`` among the first ``count`` that were put aside.

    ``is_aside`` marks all of them, and may mark rows that were not put aside.
    """
    marked = 0
    for row in range(first, stop):
        marked += is_aside[row] != 0
    found, size = np.empty(marked, np.int64), 0
    if marked:
        for k in range(count):
            if first <= rows[k] < stop:
                found[size] = k
                size += 1
    return found[:size]


@compiled
def read_aside(starts: Array, at: Array, kept: Array, weights: Array, slots: Array) -> None:
    """Write the weights and slots that :func:`put_aside` has kept from ``starts`` on as the rows ``at`` of two matrices."""
    dim, slot_dim = weights.shape[1], slots.shape[1]
    for k in range(len(starts)):
        start, row = starts[k], at[k]
        weights[row] = kept[start : start + dim]
        slots[row] = kept[start + dim : start + dim + slot_dim]
