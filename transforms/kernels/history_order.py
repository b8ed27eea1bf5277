"""The order of rows by key and time: a radix sort, and positions of times among rows that are in order."""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined

_SIGN = np.uint64(1 << 63)
_DIGIT_BITS = 11
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def order_by_key(keys: Array, time: Array, size: int) -> tuple[Array, Array, Array]:
    """The rows by key, then time, then position: positions of rows, the first one of each key and the end, and the time of each.

    Args:
        keys: of each row, from 0 to ``size`` - 1; rows with -1 are left out: int64.
        time: of each row: int64.
        size: the number of keys.
    """
    by_time = None if is_ascending(time) else _order_by_time(time)
    return _order_by_key(keys, np.empty(0, np.int64) if by_time is None else by_time, by_time is not None, time, size)


@compiled
def is_ascending(time: Array) -> bool:
    """Whether no time is before the one ahead of it."""
    descents = 0
    for row in range(1, len(time)):
        descents += time[row] < time[row - 1]
    return descents == 0


@compiled
def _order_by_time(time: Array) -> Array:
    """A radix sort from the lowest digits on, as far as the times differ."""
    rows = len(time)
    least, most = time[0], time[0]
    for row in range(rows):
        least, most = min(least, time[row]), max(most, time[row])
    span = (np.uint64(most) ^ _SIGN) - (np.uint64(least) ^ _SIGN)
    digits, order = np.empty(rows, np.uint64), np.empty(rows, np.int64)
    for row in range(rows):
        digits[row] = np.uint64(time[row]) - np.uint64(least)
        order[row] = row
    next_digits, next_order = np.empty(rows, np.uint64), np.empty(rows, np.int64)
    size = 1 << _DIGIT_BITS
    mask, shift = np.uint64(size - 1), np.uint64(0)
    starts = np.empty(size + 1, np.int64)
    while span:
        starts[:] = 0
        for row in range(rows):
            starts[np.int64((digits[row] >> shift) & mask) + 1] += 1
        for k in range(size):
            starts[k + 1] += starts[k]
        for row in range(rows):
            digit = np.int64((digits[row] >> shift) & mask)
            place = starts[digit]
            starts[digit] = place + 1
            next_digits[place], next_order[place] = digits[row], order[row]
        digits, next_digits = next_digits, digits
        order, next_order = next_order, order
        shift += np.uint64(_DIGIT_BITS)
        span >>= np.uint64(_DIGIT_BITS)
    return order


@compiled
def _order_by_key(keys: Array, by_time: Array, has_order: bool, time: Array, size: int) -> tuple[Array, Array, Array]:
    starts = np.zeros(size + 1, np.int64)
    for row in range(len(keys)):
        if keys[row] >= 0:
            starts[keys[row] + 1] += 1
    for key in range(size):
        starts[key + 1] += starts[key]
    ahead = starts[:-1].copy()
    order, ordered = np.empty(starts[size], np.int64), np.empty(starts[size], np.int64)
    for k in range(len(keys)):
        row = by_time[k] if has_order else k
        key = keys[row]
        if key >= 0:
            order[ahead[key]], ordered[ahead[key]] = row, time[row]
            ahead[key] += 1
    return order, starts, ordered


@inlined
def bound_of(at: int, shift: int, hop: int) -> int:
    """``at + shift``, moved back to a multiple of ``hop`` if that is not 0; a bound that int64 cannot hold is its least or greatest number."""
    bound = max(at, _LEAST - shift) + shift if shift < 0 else min(at, _MOST - shift) + shift
    if hop:
        bound = max(bound, _LEAST + hop) // hop * hop
    return bound


@compiled
def rows_before(starts: Array, time: Array, event_starts: Array, at: Array, shift: int, hop: int) -> Array:
    """For each event, the first row of its key whose time is not before a bound, or the end of the key's rows.

    The bound is :func:`bound_of` ``at``, ``shift`` and ``hop``.

    Args:
        starts: the first row of each key, and the end: int64.
        time: of each row, ascending within a key: int64.
        event_starts: the first event of each key, and the end: int64.
        at: of each event, ascending within a key: int64.
        shift: of the bound.
        hop: of the bound.
    """
    found = np.empty(len(at), np.int64)
    for key in range(len(event_starts) - 1):
        row, end = starts[key], starts[key + 1]
        for event in range(event_starts[key], event_starts[key + 1]):
            bound = bound_of(at[event], shift, hop)
            while row < end and time[row] < bound:
                row += 1
            found[event] = row
    return found


@compiled
def equal_rows(starts: Array, time: Array) -> tuple[Array, Array]:
    """The rows that have the key and time of another one, ascending, and the number of the group of each."""
    found, groups = np.empty(len(time), np.int64), np.empty(len(time), np.int64)
    used, group = 0, 0
    for key in range(len(starts) - 1):
        row = starts[key]
        while row < starts[key + 1]:
            end = row + 1
            while end < starts[key + 1] and time[end] == time[row]:
                end += 1
            if end > row + 1:
                for tied in range(row, end):
                    found[used], groups[used] = tied, group
                    used += 1
                group += 1
            row = end
    return found[:used], groups[:used]
