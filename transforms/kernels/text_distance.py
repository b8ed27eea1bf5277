"""The Levenshtein distance of two texts: the algorithm of Myers (1999) in blocks, by Hyyrö (2003).

A column of the table of distances is kept as its differences, 64 code points of one text in two machine words. A block
of 64 runs over the whole other text; what it passes on to the next block is one difference, -1, 0 or 1, a code point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, Strings
from transforms.errors import DataError
from transforms.kernels.buffers import spans
from transforms.kernels.compiled import compiled
from transforms.kernels.text_parts import code_point_at

_BLOCK = 64
_CODE_POINTS = 0x110000
_ALL, _NONE, _ONE = np.uint64(2**64 - 1), np.uint64(0), np.uint64(1)


def edit_distance(column: Column, other: Column) -> Column:
    """The least number of code points inserted, deleted or replaced that turns one text into the other."""
    if not isinstance(column, Strings) or not isinstance(other, Strings):
        raise DataError(
            "the arguments of edit_distance must be text", value=f"{type(column).__name__}, {type(other).__name__}"
        )
    return Numbers(_distances(*spans(column), *spans(other)))


@compiled
def _decoded(data: Array, start: Any, end: Any) -> Array:
    codes = np.empty(end - start, np.int32)
    count = 0
    while start < end:
        code, size = code_point_at(data, start)
        codes[count] = code
        count += 1
        start += size
    return codes[:count]


@compiled
def _distances(data_a: Array, starts_a: Array, ends_a: Array, data_b: Array, starts_b: Array, ends_b: Array) -> Array:
    distances = np.empty(len(starts_a), np.int64)
    masks = np.zeros(_CODE_POINTS, np.uint64)
    for row in range(len(starts_a)):
        a = _decoded(data_a, np.int64(starts_a[row]), np.int64(ends_a[row]))
        b = _decoded(data_b, np.int64(starts_b[row]), np.int64(ends_b[row]))
        distances[row] = _distance(a, b, masks) if len(a) <= len(b) else _distance(b, a, masks)
    return distances


@compiled
def _distance(short: Array, long: Array, masks: Array) -> Any:
    first, last = 0, 0
    while first < len(short) and short[first] == long[first]:
        first += 1
    while last < len(short) - first and short[len(short) - 1 - last] == long[len(long) - 1 - last]:
        last += 1
    short, long = short[first : len(short) - last], long[first : len(long) - last]
    rises, falls = np.ones(len(long), np.uint8), np.zeros(len(long), np.uint8)
    if len(short) == 0:
        return np.int64(len(long))
    for begin in range(0, len(short), _BLOCK):
        _run_block(short[begin : begin + _BLOCK], long, masks, rises, falls)
    distance = np.int64(len(short))
    for j in range(len(long)):
        distance += np.int64(rises[j]) - np.int64(falls[j])
    return distance


@compiled
def _run_block(block: Array, long: Array, masks: Array, rises: Array, falls: Array) -> None:
    """Take ``rises`` and ``falls``, the differences along the row above a block, to those along its last row."""
    for i in range(len(block)):
        masks[block[i]] |= _ONE << np.uint64(i)
    bottom = np.uint64(len(block) - 1)
    up, down = _ALL, _NONE
    for j in range(len(long)):
        rise, fall = np.uint64(rises[j]), np.uint64(falls[j])
        equal = masks[long[j]] | fall
        diagonal = (((equal & up) + up) ^ up) | equal | down
        rising, falling = down | ~(diagonal | up), diagonal & up
        rises[j], falls[j] = (rising >> bottom) & _ONE, (falling >> bottom) & _ONE
        rising, falling = (rising << _ONE) | rise, (falling << _ONE) | fall
        up, down = falling | ~(diagonal | rising), rising & diagonal
    for i in range(len(block)):
        masks[block[i]] = _NONE
