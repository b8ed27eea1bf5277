"""The slots of a batch in ascending order of their rows, so that row numbers can be sent as differences.

The distinct rows of a table are sorted once, before they are divided among their owners: an owner's numbers of ascending rows ascend. Slots stay
as they are, and with them the places of ids.
"""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined

_LEAST_BITS, _MOST_BITS = 4, 11
#: What it costs to count and to place a row in a pass, over what it costs to sum one count of a digit.
_ROW_COST = 3


@inlined
def _passes_of(bits: int, digit_bits: int) -> int:
    return max((bits + digit_bits - 1) // digit_bits, 1)


@inlined
def _digit_bits(count: int, bits: int) -> int:
    """The bits of a digit by which ``count`` numbers of so many bits are sorted soonest."""
    best, least_cost = _LEAST_BITS, 1 << 62
    for digit_bits in range(_LEAST_BITS, _MOST_BITS + 1):
        cost = _passes_of(bits, digit_bits) * (_ROW_COST * count + (1 << digit_bits))
        if cost < least_cost:
            best, least_cost = digit_bits, cost
    return best


@inlined
def _sort_pass(rows: Array, before: Array, has_before: bool, shift: int, starts: Array, after: Array) -> None:
    """Write the slots in ``before``, or all in their order, to ``after``, sorted by one digit; equal ones stay in their order."""
    starts[:] = 0
    low = len(starts) - 1
    for row in rows:
        starts[(row >> shift) & low] += 1
    total = 0
    for digit in range(len(starts)):
        count = starts[digit]
        starts[digit] = total
        total += count
    for k in range(len(rows)):
        slot = before[k] if has_before else k
        digit = (rows[slot] >> shift) & low
        after[starts[digit]] = slot
        starts[digit] += 1


@compiled
def order_slots(chosen: Array, starts: Array, rows: Array, counts: Array, order: Array) -> None:
    """Write the slots of the ``chosen`` tables to ``order``, int32, from the lowest row to the highest.

    ``starts``, ``rows`` and ``counts`` are those of :class:`~trainer.tables.routes.partitioned.request_kernels.Slots`; rows are at least 0.
    """
    longest = 0
    for t in chosen:
        longest = max(longest, counts[t])
    spare_memory, count_memory = np.empty(longest, np.int32), np.empty(1 << _MOST_BITS, np.int32)
    for t in chosen:
        first, count = starts[t], counts[t]
        of_table, one, other = rows[first : first + count], order[first : first + count], spare_memory[:count]
        largest = np.int64(0)
        for row in of_table:
            largest |= row
        bits = 0
        while bits < 63 and largest >> bits:
            bits += 1
        digit_bits = _digit_bits(count, bits)
        passes = _passes_of(bits, digit_bits)
        counted = count_memory[: 1 << digit_bits]
        if passes % 2 == 0:
            one, other = other, one
        for k in range(passes):
            _sort_pass(of_table, other, k > 0, k * digit_bits, counted, one)
            one, other = other, one
