"""Integers in as few bits as hold them, written and read at the speed of memory.

Values lie in sixteen lanes: value ``i`` is the ``i // 16``-th of lane ``i % 16``. A lane is a stream of bits, the first value lowest,
cut into words of 64 bits, and word ``k`` of lane ``j`` is word ``16 * k + j``. So sixteen values that follow one another
are shifted alike, whatever the width: a few steps of a vector unit.

Values are 64-bit patterns here; what is packed is their difference to ``base``, which wraps around.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.kernels.compiled import compiled

Array = np.ndarray[Any, np.dtype[Any]]

LANES = 16
_LARGEST_OFFSET = 2**31 - 1
#: So many values are looked at before their variety is judged.
_FIRST = 1024


def packed_words(count: int, width: int) -> int:
    """How many 64-bit words ``count`` values of ``width`` bits take."""
    return -(-(-(-count // LANES) * width) // 64) * LANES


@compiled
def pack(values: Array, base: int, width: int, words: Array) -> None:
    """``values - base`` in ``width`` (1 to 64) bits each into ``words``, which holds zeros."""
    start = np.uint64(base)
    lane = np.zeros(LANES, np.uint64)
    for row in range(-(-len(values) // LANES)):
        bit, first = row * width, row * LANES
        at, shift = (bit >> 6) * LANES, np.uint64(bit & 63)
        some = min(LANES, len(values) - first)
        if some < LANES:
            lane[:] = np.uint64(0)
        for j in range(some):
            lane[j] = np.uint64(values[first + j]) - start
        for j in range(LANES):
            words[at + j] |= lane[j] << shift
        if (bit & 63) + width > 64:
            rest = np.uint64(64) - shift
            for j in range(LANES):
                words[at + LANES + j] = lane[j] >> rest


@compiled
def unpack(words: Array, base: int, width: int, out: Array) -> None:
    """The inverse of :func:`pack`, for ``len(out)`` values; ``words`` is as long as :func:`packed_words` says."""
    start = np.uint64(base)
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)
    whole = len(out) // LANES
    for row in range(whole):
        bit, first = row * width, row * LANES
        at, shift = (bit >> 6) * LANES, np.uint64(bit & 63)
        if (bit & 63) + width > 64:
            rest = np.uint64(64) - shift
            for j in range(LANES):
                out[first + j] = ((words[at + j] >> shift | words[at + LANES + j] << rest) & mask) + start
        else:
            for j in range(LANES):
                out[first + j] = (words[at + j] >> shift & mask) + start
    bit, first = whole * width, whole * LANES
    at, shift = (bit >> 6) * LANES, np.uint64(bit & 63)
    for j in range(len(out) - first):
        value = words[at + j] >> shift
        if (bit & 63) + width > 64:
            value |= words[at + LANES + j] << (np.uint64(64) - shift)
        out[first + j] = (value & mask) + start


@compiled
def unpack_terms(words: Array, width: int, terms: Array, out: Array) -> None:
    """The term of each of ``len(out)`` packed codes; ``terms`` has ``2 ** width`` entries, so that no code leads out of it."""
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)
    lane = np.zeros(LANES, np.uint64)
    for row in range(-(-len(out) // LANES)):
        bit, first = row * width, row * LANES
        at, shift = (bit >> 6) * LANES, np.uint64(bit & 63)
        if (bit & 63) + width > 64:
            rest = np.uint64(64) - shift
            for j in range(LANES):
                lane[j] = (words[at + j] >> shift | words[at + LANES + j] << rest) & mask
        else:
            for j in range(LANES):
                lane[j] = words[at + j] >> shift & mask
        for j in range(min(LANES, len(out) - first)):
            out[first + j] = terms[lane[j]]


@compiled
def find_terms(values: Array, slots: Array, terms: Array, codes: Array) -> int:
    """The distinct values in order of appearance, and each value's place among them.

    ``slots``: zeros, a power of two of them, at least twice as many as ``terms``. Returns how many terms there are, or -1
    when there are more than ``terms`` holds, or when the values vary too much for it to be worth going on.
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
def extremes(values: Array) -> tuple[int, int]:
    """The least and the greatest of at least one value."""
    least = greatest = values[0]
    for value in values:
        least = min(least, value)
        greatest = max(greatest, value)
    return least, greatest


@compiled
def to_offsets(lengths: Array, offsets: Array) -> int:
    """Sums of the first 0, 1, ... lengths into ``offsets``; returns the last, or -1 when one is negative or beyond int32."""
    total = 0
    offsets[0] = 0
    for i in range(len(lengths)):
        if lengths[i] < 0 or lengths[i] > _LARGEST_OFFSET - total:
            return -1
        total += lengths[i]
        offsets[i + 1] = total
    return total
