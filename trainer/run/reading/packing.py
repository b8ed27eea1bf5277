"""The inner loops that write the ids of some rows of many columns into one buffer, in as few bytes as their bounds allow.

``columns`` is as in :mod:`trainer.run.reading.kernels`. A row of ``described`` (int64, [inputs, 5]) is what the buffer has of an input: how its
ids are stored; the bytes of an id; the number of ids; the input whose offsets it uses; and the ids per event, 0 for lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from trainer.run.reading.kernels import (
    BAD_ID,
    BAD_OFFSETS,
    BOUND,
    COUNT,
    EVENTS,
    FIRST_BIT,
    FIXED,
    IDS,
    KIND,
    LISTS,
    NULLABLE,
    OFFSETS,
    SIZE,
    VALID,
    WEIGHTS,
    WIDTH,
    are_finite,
    float32_at,
    int32_at,
    int64_at,
    uint8_at,
)
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, uncounted

#: The fields of a row of ``described``, and of a row of ``places``: the first bytes of what the buffer has of an input, -1 for nothing.
HOW, BYTES, IDS_COUNT, SHARED, PER_EVENT = range(5)
IDS_AT, VALID_AT, OFFSETS_AT, WEIGHTS_AT = range(4)


@compiled
def narrow_labels(labels: Array, out: Array) -> bool:
    """Write labels (float64) as bytes (uint8); returns whether that keeps each of them, the sign of 0 included."""
    differs, bits = np.uint8(0), labels.view(np.int64)
    for i in range(len(labels)):
        value = labels[i]
        out[i] = np.uint8(value if 0.0 <= value <= 255.0 else 0.0)
        differs |= np.uint8(np.float64(out[i]) != value) | np.uint8(bits[i] < 0)
    return bool(differs == 0)


@compiled
def describe(columns: Array, first: int, stop: int, described: Array) -> int:
    """Fill ``described`` for rows ``first`` to ``stop``; returns what is wrong, else 0.

    Lists of equally many ids need no offsets, and equal offsets are there once.
    """
    rows = stop - first
    for f in range(len(columns)):
        column, one = columns[f], described[f]
        one[HOW], one[SHARED], one[PER_EVENT] = column[KIND], f, column[SIZE]
        one[BYTES] = _bytes_for(column[BOUND])
        one[IDS_COUNT] = rows * column[SIZE]
        if column[KIND] != LISTS:
            continue
        offsets = carray(int32_at(column[OFFSETS]), column[EVENTS] + 1)[first : stop + 1]
        begin, end = np.int64(offsets[0]), np.int64(offsets[rows])
        if begin < 0 or end > column[COUNT] or _descends(offsets):
            return BAD_OFFSETS
        one[IDS_COUNT] = end - begin
        length = (end - begin) // max(rows, 1)
        if column[WEIGHTS] == 0 and length and _is_even(offsets, length):
            one[HOW], one[PER_EVENT], one[IDS_COUNT] = FIXED, length, rows * length
            continue
        for other in range(f):
            if described[other, HOW] == LISTS and described[other, SHARED] == other:
                theirs = carray(int32_at(columns[other, OFFSETS]), columns[other, EVENTS] + 1)[first : stop + 1]
                if described[other, IDS_COUNT] == end - begin and _are_equal(offsets, theirs):
                    one[SHARED] = other
                    break
    return 0


@uncounted
def _bytes_for(bound: int) -> int:
    if bound <= 1 << 8:
        return 1
    if bound <= 1 << 16:
        return 2
    return 4 if bound <= 1 << 32 else 8


@uncounted
def _descends(offsets: Array) -> Any:
    found = np.int32(0)
    for i in range(len(offsets) - 1):
        found |= np.int32(offsets[i + 1] < offsets[i])
    return found


@uncounted
def _is_even(offsets: Array, length: Any) -> bool:
    differs = np.int32(0)
    for i in range(len(offsets) - 1):
        differs |= (offsets[i + 1] - offsets[i]) ^ np.int32(length)
    return bool(differs == 0)


@uncounted
def _are_equal(offsets: Array, theirs: Array) -> bool:
    differs, apart = np.int32(0), offsets[0] - theirs[0]
    for i in range(len(offsets)):
        differs |= offsets[i] - theirs[i] - apart
    return bool(differs == 0)


@compiled
def pack(columns: Array, first: int, stop: int, described: Array, places: Array, out: Array) -> tuple[int, int]:
    """Write all inputs into ``out`` (uint8) at ``places``; returns what is wrong with which input, else zeros. Null ids are 0."""
    rows = stop - first
    for f in range(len(columns)):
        column, one, place = columns[f], described[f], places[f]
        begin, count, width = first * column[SIZE], one[IDS_COUNT], one[BYTES]
        if column[KIND] == LISTS:
            offsets = carray(int32_at(column[OFFSETS]), column[EVENTS] + 1)[first : stop + 1]
            begin = np.int64(offsets[0])
            if place[OFFSETS_AT] >= 0:
                _from_zero(offsets, out[place[OFFSETS_AT] : place[OFFSETS_AT] + 4 * (rows + 1)].view(np.int32))
        source = carray(int64_at(column[IDS]), column[COUNT])[begin : begin + count]
        target, last = out[place[IDS_AT] : place[IDS_AT] + count * width], np.uint64(column[BOUND] - 1)
        bits = target[:0]
        if column[KIND] == NULLABLE:
            valid = carray(uint8_at(column[VALID]), (column[FIRST_BIT] + column[EVENTS] + 7) // 8)
            bits = out[place[VALID_AT] : place[VALID_AT] + (rows + 7) // 8]
            _copy_bits(valid, column[FIRST_BIT] + first, bits)
        if width == 1:
            wrong = _narrow(source, bits, target, last)
        elif width == 2:
            wrong = _narrow(source, bits, target.view(np.uint16), last)
        elif width == 4:
            wrong = _narrow(source, bits, target.view(np.uint32), last)
        else:
            wrong = _narrow(source, bits, target.view(np.int64), last)
        # The sign is set by an id below 0, and by an id above the last one.
        if wrong >> np.uint64(63):
            return BAD_ID, f
        if place[WEIGHTS_AT] >= 0:
            weights = carray(float32_at(column[WEIGHTS]), column[COUNT])[begin : begin + count]
            _copy(weights, out[place[WEIGHTS_AT] : place[WEIGHTS_AT] + 4 * count].view(np.float32))
    return 0, 0


@uncounted
def _narrow(source: Array, bits: Array, out: Array, last: Any) -> Any:
    wrong = np.uint64(0)
    if len(bits):
        for i in range(len(out)):
            is_valid = (np.uint64(bits[i >> 3]) >> np.uint64(i & 7)) & np.uint64(1)
            one = np.uint64(source[i])
            wrong |= (one | (last - one)) & (np.uint64(0) - is_valid)
            out[i] = one * is_valid
    else:
        for i in range(len(out)):
            one = np.uint64(source[i])
            wrong |= one | (last - one)
            out[i] = one
    return wrong


@uncounted
def _copy_bits(valid: Array, first_bit: int, out: Array) -> None:
    shift, at = first_bit & 7, first_bit >> 3
    for i in range(len(out)):
        low = np.int64(valid[at + i]) >> shift
        high = np.int64(valid[at + i + 1]) << (8 - shift) if shift and at + i + 1 < len(valid) else 0
        out[i] = np.uint8((low | high) & 255)


@uncounted
def _from_zero(offsets: Array, out: Array) -> None:
    for i in range(len(out)):
        out[i] = offsets[i] - offsets[0]


@uncounted
def _copy(source: Array, out: Array) -> None:
    for i in range(len(out)):
        out[i] = source[i]


#: The fields of what is expected of an input (int64, [inputs, 4]): the bound of its ids; the ids of an event, 0 for lists; and whether
#: ids have weights, and an event may be null.
TYPE_BOUND, TYPE_SIZE, TYPE_WEIGHTED, TYPE_NULLABLE = range(4)


@compiled
def place(described: Array, expected: Array, rows: int, begin: int, places: Array) -> int:
    """Fill ``places`` with where each input is from the byte ``begin`` on; returns the end. Counts must be checked before."""
    at = begin
    places[:] = -1
    for f in range(len(described)):
        one = described[f]
        places[f, IDS_AT] = at
        at += (one[IDS_COUNT] * one[BYTES] + 7) // 8 * 8
        if one[HOW] == NULLABLE:
            places[f, VALID_AT] = at
            at += (rows + 63) // 64 * 8
        if one[HOW] == LISTS and one[SHARED] == f:
            places[f, OFFSETS_AT] = at
            at += (4 * (rows + 1) + 7) // 8 * 8
        if expected[f, TYPE_WEIGHTED]:
            places[f, WEIGHTS_AT] = at
            at += (4 * one[IDS_COUNT] + 7) // 8 * 8
    return at


@compiled
def find_unsound(described: Array, expected: Array, rows: int, most: int) -> int:
    """The first input that is described in a way that its type does not have, or has more ids than ``most``; -1 for none."""
    for f in range(len(described)):
        how, width, count, shared, size = described[f]
        type_size = expected[f, TYPE_SIZE]
        if not (0 <= count <= most and 0 <= size <= most and (width == 1 or width == 2 or width == 4 or width == 8)):
            return f
        if how == LISTS:
            if type_size != 0 or size != 0 or not 0 <= shared <= f:
                return f
            if shared != f and (described[shared, HOW] != LISTS or described[shared, SHARED] != shared):
                return f
            continue
        if shared != f or count != size * rows:
            return f
        if how == FIXED:
            if expected[f, TYPE_WEIGHTED] or (type_size != 0 and size != type_size):
                return f
        elif how != NULLABLE or not expected[f, TYPE_NULLABLE] or size != 1:
            return f
    return -1


@compiled
def point(content: Array, described: Array, places: Array, expected: Array, rows: int, columns: Array) -> int:
    """Fill ``columns`` with addresses in ``content``, checked by :func:`find_unsound` and for its length.

    Returns the first input with offsets that do not ascend from 0 to its number of ids, or a weight that is not finite; -1 for none.
    """
    base = content.ctypes.data
    for f in range(len(described)):
        one, column = described[f], columns[f]
        column[KIND], column[SIZE], column[EVENTS] = one[HOW], one[PER_EVENT], rows
        column[COUNT], column[BOUND], column[WIDTH] = one[IDS_COUNT], expected[f, TYPE_BOUND], one[BYTES]
        column[IDS] = base + places[f, IDS_AT]
        column[FIRST_BIT] = column[OFFSETS] = column[VALID] = column[WEIGHTS] = 0
        if one[HOW] == NULLABLE:
            column[VALID] = base + places[f, VALID_AT]
        if one[HOW] == LISTS:
            at = places[one[SHARED], OFFSETS_AT]
            column[OFFSETS] = base + at
            offsets = content[at : at + 4 * (rows + 1)].view(np.int32)
            if offsets[rows] != one[IDS_COUNT] or (one[SHARED] == f and (offsets[0] != 0 or _descends(offsets))):
                return f
        if expected[f, TYPE_WEIGHTED]:
            at = places[f, WEIGHTS_AT]
            column[WEIGHTS] = base + at
            if not are_finite(content[at : at + 4 * one[IDS_COUNT]].view(np.uint32)):
                return f
    return -1
