"""Rows of a history that an event sees: those of its key, before it, in a window, and known by then.

A history has the rows of many keys. For each key its distinct times are the leaves of a binary trie over the bits of a time, so the place of a row follows from its time alone. A
state of visible rows is folded along the trie, and a part without a visible row is left out: the result, to the last bit of a float, is a function of the *set* of visible rows,
whatever else the history holds and in whichever order it came. Each node keeps the fold of all of its rows and the least and greatest times at which they become known, so that a
window costs a few nodes, and rows that became known late are looked at one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_NONE = np.int64(-1)
_SIGN = np.uint64(1 << 63)
_LEAST = np.int64(-(1 << 63))


class History(NamedTuple):
    """Rows by key, time and tie, with the trie of each key.

    Attributes:
        starts: The first row of each key, and the end.
        time: Of each row, in any unit; ascending within a key.
        known: From when on a row is visible to events that come later.
        roots: The root of each key's trie; -1 for a key without rows.
        near: By node, the half with the earlier times; -1 of a leaf.
        far: The half with the later times; -1 of a leaf.
        first: By node, its first row.
        end: The row after its last one.
        known_first: The least of its rows' ``known``.
        known_last: The greatest.
    """

    starts: Array
    time: Array
    known: Array
    roots: Array
    near: Array
    far: Array
    first: Array
    end: Array
    known_first: Array
    known_last: Array


class Folds(NamedTuple):
    """A value of each row, and the states of the rows below each node.

    Attributes:
        value: Of each row.
        valid: Whether a row has a value; others are left out.
        count: By node, rows with a value.
        total: Their sum, folded along the trie.
        least: The least value; of no value NaN.
        most: The greatest.
    """

    value: Array
    valid: Array
    count: Array
    total: Array
    least: Array
    most: Array


def history(starts: Array, time: Array, known: Array) -> History:
    """The history of rows that are sorted by key, then by time, then by what orders equal times.

    Args:
        starts: the first row of each key, and the end: int64.
        time: of each row: int64.
        known: from when on each row is known: int64.
    """
    return History(starts, time, known, *_tries(starts, time, known))


def folds(of: History, value: Array, valid: Array) -> Folds:
    """The states of a float64 value by node; ``valid``: which rows have one."""
    return Folds(value, valid, *_folded(of.near, of.far, of.first, of.end, value, valid))


@compiled
def _is_lower_split(a: np.uint64, b: np.uint64) -> bool:
    """Whether the highest bit of ``a`` is lower than that of ``b``."""
    return a < b and a < (a ^ b)


@compiled
def _tries(starts: Array, time: Array, known: Array) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
    rows, keys = len(time), len(starts) - 1
    most = max(2 * rows, 1)
    near, far = np.full(most, _NONE), np.full(most, _NONE)
    first, end = np.empty(most, np.int64), np.empty(most, np.int64)
    known_first, known_last = np.empty(most, np.int64), np.empty(most, np.int64)
    roots = np.full(keys, _NONE)
    nodes = 0
    waiting, splits = np.empty(65, np.int64), np.empty(65, np.uint64)
    for key in range(keys):
        depth = 0
        row = starts[key]
        stop = starts[key + 1]
        current = _NONE
        before = np.uint64(0)
        while row < stop:
            leaf = nodes
            nodes += 1
            first[leaf] = row
            known_first[leaf], known_last[leaf] = known[row], known[row]
            at = time[row]
            while row < stop and time[row] == at:
                known_first[leaf] = min(known_first[leaf], known[row])
                known_last[leaf] = max(known_last[leaf], known[row])
                row += 1
            end[leaf] = row
            place = np.uint64(at) ^ _SIGN
            if current >= 0:
                split = before ^ place
                while depth and _is_lower_split(splits[depth - 1], split):
                    depth -= 1
                    current = _join(waiting[depth], current, nodes, near, far, first, end, known_first, known_last)
                    nodes += 1
                waiting[depth], splits[depth] = current, split
                depth += 1
            current, before = leaf, place
        while depth:
            depth -= 1
            current = _join(waiting[depth], current, nodes, near, far, first, end, known_first, known_last)
            nodes += 1
        roots[key] = current
    return roots, near[:nodes], far[:nodes], first[:nodes], end[:nodes], known_first[:nodes], known_last[:nodes]


@compiled
def _join(
    a: int,
    b: int,
    node: int,
    near: Array,
    far: Array,
    first: Array,
    end: Array,
    known_first: Array,
    known_last: Array,
) -> int:
    near[node], far[node] = a, b
    first[node], end[node] = first[a], end[b]
    known_first[node] = min(known_first[a], known_first[b])
    known_last[node] = max(known_last[a], known_last[b])
    return node


@compiled
def _combined(
    a: tuple[int, float, float, float], b: tuple[int, float, float, float]
) -> tuple[int, float, float, float]:
    """The state of two disjoint sets of rows, the earlier one first; an empty one changes no bit of the other."""
    if a[0] == 0:
        return b
    if b[0] == 0:
        return a
    return a[0] + b[0], a[1] + b[1], _least(a[2], b[2]), _most(a[3], b[3])


@compiled
def _least(a: float, b: float) -> float:
    """NaN if one is NaN; -0.0 is less than 0.0."""
    if a != a or b != b:
        return np.nan
    if a == b:
        return a if np.signbit(a) else b
    return min(a, b)


@compiled
def _most(a: float, b: float) -> float:
    if a != a or b != b:
        return np.nan
    if a == b:
        return b if np.signbit(a) else a
    return max(a, b)


@compiled
def _of_rows(
    first: int, end: int, before: int, known: Array, value: Array, valid: Array
) -> tuple[int, float, float, float]:
    """The state of rows of one time that are known before a time, folded in their order."""
    state = (0, 0.0, np.nan, np.nan)
    for row in range(first, end):
        if valid[row] and known[row] < before:
            state = _combined(state, (1, value[row], value[row], value[row]))
    return state


@compiled
def _folded(
    near: Array, far: Array, first: Array, end: Array, value: Array, valid: Array
) -> tuple[Array, Array, Array, Array]:
    nodes = len(near)
    count, total = np.zeros(nodes, np.int64), np.zeros(nodes, np.float64)
    least, most = np.full(nodes, np.nan), np.full(nodes, np.nan)
    for node in range(nodes):  # a node comes after its halves
        state = (0, 0.0, np.nan, np.nan)
        if near[node] < 0:
            for row in range(first[node], end[node]):
                if valid[row]:
                    state = _combined(state, (1, value[row], value[row], value[row]))
        else:
            a, b = near[node], far[node]
            state = _combined((count[a], total[a], least[a], most[a]), (count[b], total[b], least[b], most[b]))
        count[node], total[node], least[node], most[node] = state
    return count, total, least, most


@compiled
def _fold(node: int, low: int, high: int, before: int, h: History, f: Folds) -> tuple[int, float, float, float]:
    """The state of the rows below a node from ``low`` on, below ``high``, and known before ``before``."""
    first, end = h.first[node], h.end[node]
    if h.time[end - 1] < low or h.time[first] >= high or h.known_first[node] >= before:
        return (0, 0.0, np.nan, np.nan)
    is_inside = h.time[first] >= low and h.time[end - 1] < high
    if is_inside and h.known_last[node] < before:
        return f.count[node], f.total[node], f.least[node], f.most[node]
    if h.near[node] < 0:
        return _of_rows(first, end, before, h.known, f.value, f.valid)
    a = _fold(h.near[node], low, high, before, h, f)
    b = _fold(h.far[node], low, high, before, h, f)
    return _combined(a, b)


@compiled
def window_states(h: History, f: Folds, key: Array, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
    """For each event, the number, sum, least and greatest of the visible values of its key.

    Args:
        h: the history.
        f: the states of a value.
        key: of each event, its place in ``h.starts``; -1 for none: int64.
        low: the first time of its window: int64.
        high: the time before which rows must be, and be known: int64.
    """
    events = len(key)
    count, total = np.zeros(events, np.int64), np.zeros(events, np.float64)
    least, most = np.full(events, np.nan), np.full(events, np.nan)
    for event in range(events):
        if key[event] >= 0 and h.roots[key[event]] >= 0:
            root = h.roots[key[event]]
            count[event], total[event], least[event], most[event] = _fold(
                root, low[event], high[event], high[event], h, f
            )
    return count, total, least, most


@compiled
def _latest(node: int, low: int, high: int, valid: Array, h: History) -> int:
    """The last visible row below a node that has a value; -1 without one."""
    first, end = h.first[node], h.end[node]
    if h.time[end - 1] < low or h.time[first] >= high or h.known_first[node] >= high:
        return -1
    if h.near[node] < 0:
        for row in range(end - 1, first - 1, -1):
            if valid[row] and h.known[row] < high:
                return row
        return -1
    found = _latest(h.far[node], low, high, valid, h)
    return found if found >= 0 else _latest(h.near[node], low, high, valid, h)


@compiled
def latest_rows(h: History, valid: Array, key: Array, low: Array, high: Array) -> Array:
    """For each event, the last visible row with a value; -1 without one. Arguments as :func:`window_states`; ``valid``: rows with a value."""
    found = np.full(len(key), _NONE)
    for event in range(len(key)):
        if key[event] >= 0 and h.roots[key[event]] >= 0:
            found[event] = _latest(h.roots[key[event]], low[event], high[event], valid, h)
    return found


@compiled
def _first(node: int, low: int, high: int, valid: Array, h: History) -> int:
    first, end = h.first[node], h.end[node]
    if h.time[end - 1] < low or h.time[first] >= high or h.known_first[node] >= high:
        return -1
    if h.near[node] < 0:
        for row in range(first, end):
            if valid[row] and h.known[row] < high:
                return row
        return -1
    found = _first(h.near[node], low, high, valid, h)
    return found if found >= 0 else _first(h.far[node], low, high, valid, h)


@compiled
def first_rows(h: History, valid: Array, key: Array, low: Array, high: Array) -> Array:
    """For each event, the first visible row with a value; -1 without one. Arguments as :func:`latest_rows`."""
    found = np.full(len(key), _NONE)
    for event in range(len(key)):
        if key[event] >= 0 and h.roots[key[event]] >= 0:
            found[event] = _first(h.roots[key[event]], low[event], high[event], valid, h)
    return found


@compiled
def _take_last(node: int, low: int, high: int, valid: Array, h: History, taken: Array, at: int, most: int) -> int:
    """Write the last visible rows below a node, the latest first, from ``at`` on; the number of all that are written."""
    first, end = h.first[node], h.end[node]
    if at == most or h.time[end - 1] < low or h.time[first] >= high or h.known_first[node] >= high:
        return at
    if h.near[node] < 0:
        for row in range(end - 1, first - 1, -1):
            if at < most and valid[row] and h.known[row] < high:
                taken[at] = row
                at += 1
        return at
    at = _take_last(h.far[node], low, high, valid, h, taken, at, most)
    return _take_last(h.near[node], low, high, valid, h, taken, at, most)


@compiled
def last_rows(h: History, valid: Array, key: Array, low: Array, high: Array, most: int) -> tuple[Array, Array]:
    """For each event, at most ``most`` of its last visible rows with a value, the latest first: lengths, and all rows one after the other."""
    events = len(key)
    lengths, taken, used = np.zeros(events, np.int64), np.empty(max(events, 16), np.int64), 0
    mine = np.empty(most, np.int64)
    for event in range(events):
        if key[event] < 0 or h.roots[key[event]] < 0:
            continue
        found = _take_last(h.roots[key[event]], low[event], high[event], valid, h, mine, 0, most)
        if used + found > len(taken):
            grown = np.empty(2 * len(taken) + found, np.int64)
            grown[:used] = taken[:used]
            taken = grown
        taken[used : used + found] = mine[:found]
        used += found
        lengths[event] = found
    return lengths, taken[:used]
