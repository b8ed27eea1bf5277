"""The distinct ids of a feature in ascending order, and the position of each id among them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_HASH = np.uint64(0x9E3779B97F4A7C15)
_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS
_LOW = np.uint64(_DIGITS - 1)


class Scratch(NamedTuple):
    """Memory for features of so many ids, which the features of a batch share.

    Attributes:
        slots: int32, for each id the place of its first occurrence among the distinct ids.
        found: int64, the distinct ids in the order of their first occurrences; afterwards ascending.
        order: int32, the place in ``found`` before it was sorted.
        ranks: int32, of each slot, the position of its id in ascending order.
        spare_found: as ``found``.
        spare_order: as ``order``.
    """

    slots: Array
    found: Array
    order: Array
    ranks: Array
    spare_found: Array
    spare_order: Array


def scratch_for(ids: int) -> Scratch:
    """Memory for features of at most ``ids`` ids."""
    of_ids, spare = np.empty((4, ids), np.int32), np.empty((2, ids), np.int64)
    return Scratch(of_ids[0], spare[0], of_ids[1], of_ids[2], spare[1], of_ids[3])


@compiled
def find_distinct(ids: Array, scratch: Scratch) -> int:
    """Write ``slots`` and ``found`` for int32 or int64 ``ids``; returns the number of distinct ids."""
    slots, found = scratch.slots, scratch.found
    bits = 4
    while (1 << bits) < 2 * len(ids):
        bits += 1
    shift, last_place = np.uint64(64 - bits), (1 << bits) - 1
    table = np.zeros(1 << bits, np.int32)
    distinct = 0
    for i in range(len(ids)):
        number = ids[i]
        place = np.int64((np.uint64(number) * _HASH) >> shift)
        while True:
            slot = table[place] - 1
            if slot < 0:
                table[place] = distinct + 1
                found[distinct] = number
                slot = distinct
                distinct += 1
                break
            if found[slot] == number:
                break
            place = (place + 1) & last_place
        slots[i] = slot
    return distinct


@compiled
def sort_distinct(scratch: Scratch, distinct: int) -> None:
    """Sort the first ``distinct`` of ``found``, by their digits from the lowest on, and write ``ranks``."""
    found, order, spare_found, spare_order = scratch.found, scratch.order, scratch.spare_found, scratch.spare_order
    least, most = found[0], found[0]
    for i in range(distinct):
        order[i] = i
        least, most = min(least, found[i]), max(most, found[i])
    range_left: Any = np.uint64(most) - np.uint64(least)
    shift: Any = np.uint64(0)
    is_spare = False
    starts = np.empty(_DIGITS, np.int64)
    while range_left:
        starts[:] = 0
        for i in range(distinct):
            starts[((np.uint64(found[i]) - np.uint64(least)) >> shift) & _LOW] += 1
        total = 0
        for digit in range(_DIGITS):
            count = starts[digit]
            starts[digit] = total
            total += count
        for i in range(distinct):
            digit = ((np.uint64(found[i]) - np.uint64(least)) >> shift) & _LOW
            to = starts[digit]
            starts[digit] += 1
            spare_found[to] = found[i]
            spare_order[to] = order[i]
        found, spare_found = spare_found, found
        order, spare_order = spare_order, order
        is_spare = not is_spare
        shift += np.uint64(_DIGIT_BITS)
        range_left >>= np.uint64(_DIGIT_BITS)
    for rank in range(distinct):
        scratch.ranks[order[rank]] = rank
    if is_spare:
        for i in range(distinct):
            scratch.found[i] = found[i]


@compiled
def write_positions(scratch: Scratch, out: Array) -> None:
    """Write the position of each id among the ascending distinct ids to ``out``, unsigned integers."""
    for i in range(len(out)):
        out[i] = scratch.ranks[scratch.slots[i]]
