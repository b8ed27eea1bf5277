"""The loops of an undo log: copy values into its blocks, check blocks, and write their values back.

A block is :data:`HEAD` numbers (array, items, values of an item, items that it has space for), then of each item its start in two
numbers and its values. All numbers are uint32; values of float32 are copied through a view of the log as float32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainer.tables.kernels.layout import Bags, TableLayout, TableValues
from trainer.tables.kernels.row_parts import ask_for, copy_row
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined

#: The numbers before the items of a block, and before the values of an item.
HEAD, ITEM_HEAD = 4, 2
#: The position of the numbers that are used in the header of a log.
USED = 4
#: The arrays that every store has first.
WEIGHTS, SLOTS, ROW_STATE = range(3)
#: The positions of the numbers of a block's head.
_ARRAY, ITEMS, _SIZE, ROOM = range(HEAD)
_HIGH = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
#: How many rows ahead one is asked for.
_AHEAD = 8


class KeptRows(NamedTuple):
    """Where an undo log keeps rows before they change; see :class:`~trainer.tables.kernels.undo_log.UndoLog`.

    Attributes:
        log: uint32, with space for all rows; empty: nothing is kept.
        floats: the same memory, float32.
        header: int64, in which the numbers that are used are at :data:`USED`.
        first_array: the position of the weights among the arrays of the log.
    """

    log: Array
    floats: Array
    header: Array
    first_array: int


#: Where nothing is kept.
KEPT_NOWHERE = KeptRows(np.zeros(0, np.uint32), np.zeros(0, np.float32), np.zeros(0, np.int64), 0)


def numbers_of_rows(dims: Array, slot_dims: Array) -> Array:
    """The most numbers that a row of each table takes in a log, int64; each table takes three heads beside."""
    found: Array = dims + slot_dims + 3 * ITEM_HEAD + 1
    return found


@inlined
def begin_block(log: Array, at: int, array: int, size: int, room: int) -> int:
    """Write the head of a block without items; returns where its items begin."""
    log[at + _ARRAY], log[at + ITEMS], log[at + _SIZE], log[at + ROOM] = array, 0, size, room
    return at + HEAD


@inlined
def put_start(log: Array, at: int, start: int) -> None:
    """Write where an item begins in its array."""
    log[at] = np.uint32(np.uint64(start) & _LOW)
    log[at + 1] = np.uint32(np.uint64(start) >> _HIGH)


@inlined
def _start(log: Array, at: int) -> int:
    return np.int64(np.uint64(log[at]) | (np.uint64(log[at + 1]) << _HIGH))  # type: ignore[return-value]


@inlined
def _keep_floats(
    ids: Array, first: int, stop: int, base: int, dim: int, source: Array, array: int, log: Array, floats: Array, at: int
) -> int:  # fmt: skip
    """A block of the ``dim`` values of each row in ``ids[first:stop]``; returns its end."""
    head = at
    at = begin_block(log, at, array, dim, stop - first)
    for i in range(first, stop):
        if i + _AHEAD < stop:
            ask_for(source, base + ids[i + _AHEAD] * dim, dim)
        start = base + ids[i] * dim
        put_start(log, at, start)
        copy_row(source, start, floats, at + ITEM_HEAD, dim)
        at += ITEM_HEAD + dim
    log[head + ITEMS] = stop - first
    return at


@compiled
def keep_rows(
    bags: Bags, table_of: Array, tables: TableLayout, values: TableValues, log: Array, floats: Array, at: int, first_array: int
) -> int:  # fmt: skip
    """Append the weights, slots and states of the rows of a (checked) batch from ``at`` on; returns the end.

    ``floats`` is ``log`` as float32; ``first_array``: the position of the weights.
    """
    ids, offsets, _ = bags
    weights, slots, row_state = values
    for f in range(offsets.shape[0]):
        t, first, stop = table_of[f], offsets[f, 0], offsets[f, offsets.shape[1] - 1]
        if first == stop:
            continue
        base, dim = tables.weight_base[t], tables.dims[t]
        at = _keep_floats(ids, first, stop, base, dim, weights, first_array + WEIGHTS, log, floats, at)
        if tables.slot_dims[t]:
            base, dim = tables.slot_base[t], tables.slot_dims[t]
            at = _keep_floats(ids, first, stop, base, dim, slots, first_array + SLOTS, log, floats, at)
        head = at
        at = begin_block(log, at, first_array + ROW_STATE, 1, stop - first)
        for i in range(first, stop):
            row = tables.row_base[t] + ids[i]
            put_start(log, at, row)
            log[at + ITEM_HEAD] = row_state[row]
            at += ITEM_HEAD + 1
        log[head + ITEMS] = stop - first
    return at


@compiled
def keep_items(array: int, starts: Array, size: int, source: Array, log: Array, at: int) -> int:
    """Append a block of the ``size`` values of ``source`` from each of ``starts`` on; returns its end."""
    head = at
    at = begin_block(log, at, array, size, len(starts))
    for k in range(len(starts)):
        put_start(log, at, starts[k])
        at += ITEM_HEAD
        for n in range(size):
            log[at + n] = source[starts[k] + n]
        at += size
    log[head + ITEMS] = len(starts)
    return at


@compiled
def next_block(log: Array, at: int, used: int, lengths: Array) -> int:
    """Where the block at ``at`` ends; -1 for one that is not whole, or of none of the arrays of these ``lengths``."""
    if at + HEAD > used:
        return -1
    array, items = int(log[at + _ARRAY]), int(log[at + ITEMS])
    size, room = int(log[at + _SIZE]), int(log[at + ROOM])
    if array >= len(lengths) or items > room or size < 1 or room > (used - at - HEAD) // (ITEM_HEAD + size):
        return -1
    for k in range(items):
        start = _start(log, at + HEAD + k * (ITEM_HEAD + size))
        if start < 0 or start > lengths[array] - size:
            return -1
    return at + HEAD + room * (ITEM_HEAD + size)


@compiled
def restore_block(log: Array, at: int, target: Array) -> None:
    """Write the values of a (checked) block back, its last item first: the first value kept of an item is what stays."""
    items, size = int(log[at + ITEMS]), int(log[at + _SIZE])
    for k in range(items - 1, -1, -1):
        item = at + HEAD + k * (ITEM_HEAD + size)
        start = _start(log, item)
        for n in range(size):
            target[start + n] = log[item + ITEM_HEAD + n]
