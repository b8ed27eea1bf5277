"""Bit packing of integers at the speed of memory.

Values are in 64 lanes: value ``i`` is the ``i // 64``-th of lane ``i % 64``. A lane is a stream of bits, the first value lowest,
cut into words of 64 bits, and word ``k`` of lane ``j`` is word ``64 * k + j``. So 64 consecutive values have the same shift,
for any width, and need a few steps of a vector unit. (The number of lanes is an argument because the compiler unrolls a loop of
known length into scalar steps. Indexes are unsigned because a signed one may count from the end, and then the loop has a branch
that keeps it from the vector unit.)

Values are 64-bit patterns; packed is their difference to ``base``, which wraps around.
"""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled

LANES = 64
_LARGEST_OFFSET = 2**31 - 1
#: The values that are read before the number of distinct ones is judged.
_FIRST = 1024
_BITS = np.uint64(64)
#: The most bits of a term's code.
LONGEST_CODE_BITS = 16
#: Values in a range of so many bits are found by a table of the range (8 MiB), wider ones by a hash table.
NEAR_BITS = 21


def packed_words(count: int, width: int) -> int:
    """The 64-bit words of ``count`` packed values of ``width`` bits."""
    return -(-(-(-count // LANES) * width) // 64) * LANES


words_of = compiled(packed_words)


@compiled
def pack(values: Array, base: int, width: int, words: Array, lanes: int) -> None:
    """Pack ``values - base`` in ``width`` (1 to 64) bits each into the zeros of ``words``; ``lanes`` is :data:`LANES`."""
    start, bits, step = np.uint64(base), np.uint64(width), np.uint64(lanes)
    for row in range(np.uint64(-(-len(values) // lanes))):
        first = row * step
        count = min(step, np.uint64(len(values)) - first)
        at, shift = ((row * bits) >> np.uint64(6)) * step, (row * bits) & np.uint64(63)
        for j in range(count):
            words[at + j] |= (np.uint64(values[first + j]) - start) << shift
        if shift + bits > _BITS:
            after, rest = at + step, _BITS - shift
            for j in range(count):
                words[after + j] = (np.uint64(values[first + j]) - start) >> rest


@compiled
def unpack(words: Array, base: int, width: int, out: Array, lanes: int) -> None:
    """The inverse of :func:`pack` for ``len(out)`` values; ``words`` has the length of :func:`packed_words`."""
    start, bits, step = np.uint64(base), np.uint64(width), np.uint64(lanes)
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> (_BITS - bits)
    for row in range(np.uint64(-(-len(out) // lanes))):
        first = row * step
        count = min(step, np.uint64(len(out)) - first)
        at, shift = ((row * bits) >> np.uint64(6)) * step, (row * bits) & np.uint64(63)
        if shift + bits > _BITS:
            after, rest = at + step, _BITS - shift
            for j in range(count):
                out[first + j] = ((words[at + j] >> shift | words[after + j] << rest) & mask) + start
        else:
            for j in range(count):
                out[first + j] = (words[at + j] >> shift & mask) + start


@compiled
def unpack_terms(words: Array, width: int, terms: Array, out: Array, lanes: int) -> None:
    """The term of each of ``len(out)`` packed codes; ``terms`` has ``2 ** width`` entries, so every code is in it."""
    bits, step = np.uint64(width), np.uint64(lanes)
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> (_BITS - bits)
    for row in range(np.uint64(-(-len(out) // lanes))):
        first = row * step
        count = min(step, np.uint64(len(out)) - first)
        at, shift = ((row * bits) >> np.uint64(6)) * step, (row * bits) & np.uint64(63)
        if shift + bits > _BITS:
            after, rest = at + step, _BITS - shift
            for j in range(count):
                out[first + j] = terms[(words[at + j] >> shift | words[after + j] << rest) & mask]
        else:
            for j in range(count):
                out[first + j] = terms[words[at + j] >> shift & mask]


@compiled
def least_and_greatest(values: Array) -> tuple[int, int]:
    """The least and the greatest of one or more values, in one pass."""
    least = greatest = values[0]
    for i in range(len(values)):
        least, greatest = min(least, values[i]), max(greatest, values[i])
    return least, greatest


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
def find_near_terms(values: Array, least: int, places: Array, terms: Array, codes: Array) -> int:
    """As :func:`find_terms`, for values from ``least`` to below ``least + len(places)``: a value's place is its difference.

    ``places`` are zeros, before and after.
    """
    found, result = 0, 0
    start = np.uint64(least)
    for i in range(np.uint64(len(values))):
        at = np.uint64(values[i]) - start
        place = places[at]
        if place == 0:
            if found == len(terms) or (i >= np.uint64(_FIRST) and np.uint64(2 * found) > i):
                result = -1
                break
            terms[found] = values[i]
            found += 1
            place = places[at] = found
        codes[i] = place - 1
    for i in range(found):
        places[np.uint64(terms[i]) - start] = 0
    return found if result == 0 else result


@compiled
def choose(values: Array, constants: int, places: Array, terms: Array, codes: Array) -> tuple[int, int, int]:
    """The base, the width and the number of terms with which one or more values are stored.

    No terms: they are packed; no terms and more than 64 bits: they are stored as they are. ``places``: zeros, before and after,
    ``2 ** NEAR_BITS`` of them. ``terms`` and ``codes`` are filled for :func:`pack_terms`.
    """
    least, greatest = least_and_greatest(values)
    spread = np.uint64(greatest) - np.uint64(least)
    width = 0
    while width < 64 and spread >> np.uint64(width):
        width += 1
    if width == 0 and len(values) > constants:
        width = 1
    raw_bytes = len(values) * values.itemsize
    packed_bytes = 8 * words_of(len(values), width)
    is_packed = 8 * packed_bytes <= 7 * raw_bytes
    limit = min(1 << min(3 * width // 4, LONGEST_CODE_BITS), len(values) // 4)
    if width > 1 and limit >= 1:
        if width <= NEAR_BITS:
            found = find_near_terms(values, least, places, terms[:limit], codes)
        else:
            slots = 1
            while slots <= 2 * limit:
                slots *= 2
            found = find_terms(values, np.zeros(slots, np.int32), terms[:limit], codes)
        code_width = 0
        while found - 1 >> code_width > 0:
            code_width += 1
        stored_words = words_of(found, width) + words_of(len(values), code_width)
        if found > 0 and 32 * stored_words <= 3 * (packed_bytes if is_packed else raw_bytes):
            return least, width, found
    return least, width if is_packed else 65, 0


@compiled
def pack_terms(terms: Array, least: int, width: int, codes: Array, code_width: int, words: Array, lanes: int) -> None:
    """Pack terms, and after them the codes, into the zeros of ``words``."""
    head = words_of(len(terms), width)
    pack(terms, least, width, words[:head], lanes)
    if code_width:
        pack(codes, 0, code_width, words[head:], lanes)


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
