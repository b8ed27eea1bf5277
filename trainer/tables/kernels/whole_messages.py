"""The rows of one message, of all its tables, in one compiled call: checked, read for an answer, or updated.

A message has rows of each table, one table after the other, and no bags. The loops are those of :mod:`~trainer.tables.kernels.row_parts`,
:mod:`~trainer.tables.kernels.undo_kernels` and :mod:`~trainer.tables.kernels.gradients`, without what a batch of bags needs around them, which for few rows
takes longer than they do. The bits are the same.
"""

from __future__ import annotations

import numpy as np

from trainer.tables.kernels.gradients import Scratch, update_distinct
from trainer.tables.kernels.importance import Importance
from trainer.tables.kernels.initial_rows import initialise_row
from trainer.tables.kernels.layout import TableLayout, TableValues, unpacked
from trainer.tables.kernels.row_parts import ask_for, copy_row, rows_ahead
from trainer.tables.kernels.undo_kernels import (
    HEAD,
    ITEM_HEAD,
    ITEMS,
    ROW_STATE,
    SLOTS,
    USED,
    WEIGHTS,
    KeptRows,
    begin_block,
    put_start,
)
from trainer.tables.kernels.vectors import LANES, item, load, prefetch, release, store
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, uncounted

_HASH = np.uint64(0x9E3779B97F4A7C15)
_ZERO = np.float32(0.0)
#: How many rows ahead one is asked for while it is copied to the undo log.
_AHEAD = 8


@compiled
def sizes_of(rows: Array, counts: Array, vocabulary: Array, dims: Array) -> tuple[int, int, int]:
    """The floats of all rows, and the most rows and floats of one table; (-1, 0, 0) if a count or a row cannot be right.

    ``vocabulary`` and ``dims``: the rows of each table, and their columns.
    """
    total = len(rows)
    if len(counts) != len(dims):
        return -1, 0, 0
    at, floats, most_rows, most_floats = 0, 0, 0, 0
    for t in range(len(counts)):
        count = counts[t]
        if count < 0 or count > total - at:
            return -1, 0, 0
        for i in range(at, at + count):
            if rows[i] < 0 or rows[i] >= vocabulary[t]:
                return -1, 0, 0
        at += count
        floats += count * dims[t]
        most_rows, most_floats = max(most_rows, count), max(most_floats, count * dims[t])
    if at != total:
        return -1, 0, 0
    return floats, most_rows, most_floats


@compiled
def read_message(
    rows: Array, counts: Array, numbers: Array, parameters: Array, slot_start: Array, weights: Array, slots: Array, row_state: Array, out: Array
) -> None:  # fmt: skip
    """As :func:`~trainer.tables.kernels.row_parts.read_weights`, of (checked) rows without bags.

    ``numbers``, ``parameters`` and ``slot_start`` are a :class:`~trainer.tables.kernels.layout.PackedLayout`, ``weights``, ``slots`` and
    ``row_state`` the values of the tables.
    """
    tables, values = unpacked(numbers, parameters, slot_start), TableValues(weights, slots, row_state)
    first, at = 0, 0
    for t in range(len(counts)):
        dim, base, stop = tables.dims[t], tables.weight_base[t], first + counts[t]
        ahead = rows_ahead(dim)
        for i in range(first, min(first + ahead, stop)):
            ask_for(weights, base + rows[i] * dim, dim)
        for i in range(first, stop):
            if i + ahead < stop:
                ask_for(weights, base + rows[i + ahead] * dim, dim)
            start = base + rows[i] * dim
            if item(weights, start + dim - 1) == _ZERO and row_state[tables.row_base[t] + rows[i]] == 0:
                initialise_row(t, rows[i], tables, values)
            copy_row(weights, start, out, at, dim)
            at += dim
        first = stop


@inlined
def _add_gradient(gradients: Array, source: int, sums: Array, at: int, dim: int) -> None:
    whole = dim - dim % LANES
    for d in range(0, whole, LANES):
        store(sums, at + d, load(sums, at + d) + load(gradients, source + d))
    for d in range(whole, dim):
        sums[at + d] += gradients[source + d]


@uncounted
def sum_rows(rows: Array, first: int, stop: int, gradients: Array, source: int, dim: int, scratch: Scratch) -> int:
    """Sum the gradients of the distinct rows of ``rows[first:stop]``, which begin at ``source``; returns the number of rows."""
    places, found, sums, _ = scratch
    bits = 4
    while (1 << bits) < 2 * (stop - first):
        bits += 1
    shift, last_place = np.uint64(64 - bits), (1 << bits) - 1
    places[: 1 << bits] = 0
    distinct = 0
    for i in range(first, stop):
        row = np.int64(item(rows, i))
        place = np.int64((np.uint64(row) * _HASH) >> shift)
        while True:
            position = item(places, place) - 1
            if position < 0:
                places[place] = distinct + 1
                found[distinct] = row
                copy_row(gradients, source, sums, distinct * dim, dim)
                distinct += 1
                break
            if item(found, position) == row:
                _add_gradient(gradients, source, sums, position * dim, dim)
                break
            place = (place + 1) & last_place
        source += dim
    return distinct


@inlined
def _keep_floats(source: Array, start: int, dim: int, log: Array, floats: Array, at: int) -> None:
    put_start(log, at, start)
    copy_row(source, start, floats, at + ITEM_HEAD, dim)


@uncounted
def keep_distinct(
    t: int, distinct: int, tables: TableLayout, values: TableValues, found: Array, kept: KeptRows
) -> None:
    """Give rows their initial values that were never read, and append them to the undo log, if there is one.

    ``found``: the rows, ``distinct`` ones of table ``t``. The log has them when this function ends, whatever happens then.
    """
    weights, slots, row_state = values
    log, floats, header, first_array = kept
    dim, slot_dim = tables.dims[t], tables.slot_dims[t]
    row_base, weight_base, slot_base = tables.row_base[t], tables.weight_base[t], tables.slot_base[t]
    keeps = len(log) > 0
    of_weights = of_slots = of_states = 0
    if keeps:
        array = first_array
        of_weights = begin_block(log, header[USED], array + WEIGHTS, dim, distinct)
        of_slots = of_weights + distinct * (ITEM_HEAD + dim)
        of_states = of_slots
        if slot_dim:
            of_slots = begin_block(log, of_slots, array + SLOTS, slot_dim, distinct)
            of_states = of_slots + distinct * (ITEM_HEAD + slot_dim)
            log[of_slots - HEAD + ITEMS] = distinct
        of_states = begin_block(log, of_states, array + ROW_STATE, 1, distinct)
        log[of_weights - HEAD + ITEMS] = log[of_states - HEAD + ITEMS] = distinct
    for n in range(distinct):
        if n + _AHEAD < distinct:
            ahead = item(found, n + _AHEAD)
            ask_for(weights, weight_base + ahead * dim, dim)
            ask_for(slots, slot_base + ahead * slot_dim, slot_dim)
            prefetch(row_state, row_base + ahead)
        row = item(found, n)
        if item(row_state, row_base + row) == 0:
            initialise_row(t, row, tables, values)
        if not keeps:
            continue
        _keep_floats(weights, weight_base + row * dim, dim, log, floats, of_weights)
        of_weights += ITEM_HEAD + dim
        if slot_dim:
            _keep_floats(slots, slot_base + row * slot_dim, slot_dim, log, floats, of_slots)
            of_slots += ITEM_HEAD + slot_dim
        put_start(log, of_states, row_base + row)
        log[of_states + ITEM_HEAD] = item(row_state, row_base + row)
        of_states += ITEM_HEAD + 1
    if keeps:
        release()
        header[USED] = of_states
        release()


@compiled
def update_message(
    rows: Array, counts: Array, gradients: Array, rates: Array, numbers: Array, parameters: Array, slot_start: Array, weights: Array,
    slots: Array, row_state: Array, log: Array, floats: Array, header: Array, first_array: int, places: Array, found: Array, sums: Array,
    distinct_rows: Array,
) -> None:  # fmt: skip
    """Update each distinct one of (checked) rows once, by the sum of its gradients in their order, after the undo log has it.

    Args:
        rows, counts: of the message.
        gradients: float32, one row after the other.
        rates: the learning rate of each table.
        numbers, parameters, slot_start: a :class:`~trainer.tables.kernels.layout.PackedLayout`.
        weights, slots, row_state: the values of the tables.
        log, floats, header, first_array: a :class:`~trainer.tables.kernels.undo_kernels.KeptRows`.
        places, found, sums: of a :class:`~trainer.tables.kernels.gradients.Scratch` with space for the rows of any of the tables.
        distinct_rows: int64, where the distinct rows of each table are written.
    """
    tables, values = unpacked(numbers, parameters, slot_start), TableValues(weights, slots, row_state)
    kept = KeptRows(log, floats, header, first_array)
    scratch = Scratch(places, found, sums, np.empty(0, np.int32))
    importance = Importance(sums[:0], sums[:0])
    first, source = 0, 0
    for t in range(len(counts)):
        count, dim = counts[t], tables.dims[t]
        distinct = 0
        if count:
            distinct = sum_rows(rows, first, first + count, gradients, source, dim, scratch)
            keep_distinct(t, distinct, tables, values, scratch.rows, kept)
            update_distinct(t, distinct, tables, rates, values, scratch, importance)
        distinct_rows[t] = distinct
        first += count
        source += count * dim
