"""Bit packing of integers at the speed of memory.

Values are in 64 lanes: value ``i`` is the ``i // 64``-th of lane ``i % 64``. A lane is a stream of bits, the first value lowest,
cut into words of 64 bits, and word ``k`` of lane ``j`` is word ``64 * k + j``. So 64 consecutive values have the same shift,
for any width, and need a few steps of a vector unit. (The number of lanes is an argument because the compiler unrolls a loop of
known length into scalar steps.)

Values are 64-bit patterns; packed is their difference to ``base``, which wraps around.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.kernels.compiled import compiled

Array = np.ndarray[Any, np.dtype[Any]]

LANES = 64
_LARGEST_OFFSET = 2**31 - 1
#: The values that are read before the number of distinct ones is judged.
_FIRST = 1024


def packed_words(count: int, width: int) -> int:
    """The 64-bit words of ``count`` packed values of ``width`` bits."""
    return -(-(-(-count // LANES) * width) // 64) * LANES


@compiled
def pack(values: Array, base: int, width: int, words: Array, lanes: int) -> None:
    """Pack ``values - base`` in ``width`` (1 to 64) bits each into the zeros of ``words``; ``lanes`` is :data:`LANES`."""
    start = np.uint64(base)
    for row in range(-(-len(values) // lanes)):
        bit = row * width
        at, used = (bit >> 6) * lanes, bit & 63
        shift = np.uint64(used)
        some = values[row * lanes : (row + 1) * lanes]
        low = words[at : at + len(some)]
        for j in range(len(some)):
            low[j] |= (np.uint64(some[j]) - start) << shift
        if used + width > 64:
            rest = np.uint64(64 - used)
            high = words[at + lanes : at + lanes + len(some)]
            for j in range(len(some)):
                high[j] = (np.uint64(some[j]) - start) >> rest


@compiled
def unpack(words: Array, base: int, width: int, out: Array, lanes: int) -> None:
    """The inverse of :func:`pack` for ``len(out)`` values; ``words`` has the length of :func:`packed_words`."""
    start = np.uint64(base)
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)
    for row in range(-(-len(out) // lanes)):
        bit = row * width
        at, used = (bit >> 6) * lanes, bit & 63
        shift = np.uint64(used)
        some = out[row * lanes : (row + 1) * lanes]
        low = words[at : at + lanes]
        if used + width > 64:
            rest = np.uint64(64 - used)
            high = words[at + lanes : at + lanes + lanes]
            for j in range(len(some)):
                some[j] = ((low[j] >> shift | high[j] << rest) & mask) + start
        else:
            for j in range(len(some)):
                some[j] = (low[j] >> shift & mask) + start


@compiled
def unpack_terms(words: Array, width: int, terms: Array, out: Array, lanes: int) -> None:
    """The term of each of ``len(out)`` packed codes; ``terms`` has ``2 ** width`` entries, so every code is in it."""
    codes = np.empty(lanes, np.uint64)
    for row in range(-(-len(out) // lanes)):
        bit = row * width
        at, used = (bit >> 6) * lanes, bit & 63
        some = out[row * lanes : (row + 1) * lanes]
        low, high = words[at : at + lanes], words[at : at + lanes]
        rest = np.uint64(0)
        if used + width > 64:
            rest = np.uint64(64 - used)
            high = words[at + lanes : at + lanes + lanes]
        shift, mask = np.uint64(used), np.uint64((1 << width) - 1)
        if rest:
            for j in range(lanes):
                codes[j] = (low[j] >> shift | high[j] << rest) & mask
        else:
            for j in range(lanes):
                codes[j] = low[j] >> shift & mask
        for j in range(len(some)):
            some[j] = terms[codes[j]]


@compiled
def find_terms(values: Array, slots: Array, terms: Array, codes: Array) -> int:
    """The distinct values in order of appearance, and each value's index among them.

    ``slots``: zeros, a power of two of them, at least twice as many as ``terms``. Returns the number of terms, or -1 if they are
    more than ``terms`` holds or too many to be worth storing.
    """
    found = 0
    last = len(slots) - 1
    for i in range(len(values)):
        value = values[i]
        key = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
        at = np.int64(key >> np.uint64(32)) & last
        while slots[at] != 0 and terms[slots[at] - 1] != value:
            at = (at + 1) & last
        if slots[at] == 0:
            if found == len(terms) or (i >= _FIRST and 2 * found > i):
                return -1
            terms[found] = value
            found += 1
            slots[at] = found
        codes[i] = slots[at] - 1
    return found


@compiled
def to_offsets(lengths: Array, offsets: Array) -> int:
    """Cumulative sums of ``lengths`` into ``offsets``; returns the last, or -1 if one is negative or exceeds int32."""
    total = 0
    offsets[0] = 0
    for i in range(len(lengths)):
        if lengths[i] < 0 or lengths[i] > _LARGEST_OFFSET - total:
            return -1
        total += lengths[i]
        offsets[i + 1] = total
    return total
