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
#: A path of the trie has at most one node for each bit of a time, and its leaf.
_DEPTH = 130


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
        values: By node, rows with a value.
        total: Their sum, folded along the trie.
        least: The least value; of no value NaN.
        most: The greatest.
    """

    value: Array
    valid: Array
    values: Array
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
def _is_lower_split(a: np.uint64, b: np.uint64) -> np.bool:
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
    nodes = np.int64(0)
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
    a: np.int64,
    b: np.int64,
    node: np.int64,
    near: Array,
    far: Array,
    first: Array,
    end: Array,
    known_first: Array,
    known_last: Array,
) -> np.int64:
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
def _states(
    roots: Array, near: Array, far: Array, first: Array, end: Array, known_first: Array, known_last: Array, time: Array, known: Array,
    value: Array, valid: Array, count: Array, total: Array, least: Array, most: Array, key: Array, low: Array, high: Array,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """:func:`window_states`. The trie is walked with a stack of its own: numba's cache cannot hold functions that call themselves."""
    events = len(key)
    counts, totals = np.zeros(events, np.int64), np.zeros(events, np.float64)
    leasts, mosts = np.full(events, np.nan), np.full(events, np.nan)
    nodes, phases = np.empty(_DEPTH, np.int64), np.empty(_DEPTH, np.int64)
    held = np.empty(_DEPTH, np.int64)
    held_total, held_least, held_most = np.empty(_DEPTH), np.empty(_DEPTH), np.empty(_DEPTH)
    for event in range(events):
        if key[event] < 0 or roots[key[event]] < 0:
            continue
        since, before = low[event], high[event]
        nodes[0], phases[0], depth = roots[key[event]], 0, 1
        state = (0, 0.0, np.nan, np.nan)
        while depth:
            top = depth - 1
            node = nodes[top]
            if phases[top] == 0:
                earliest, last = time[first[node]], time[end[node] - 1]
                if last < since or earliest >= before or known_first[node] >= before:
                    state = (0, 0.0, np.nan, np.nan)
                    depth -= 1
                elif earliest >= since and last < before and known_last[node] < before:
                    state = (count[node], total[node], least[node], most[node])
                    depth -= 1
                elif near[node] < 0:
                    state = _of_rows(first[node], end[node], before, known, value, valid)
                    depth -= 1
                else:
                    phases[top] = 1
                    nodes[depth], phases[depth] = near[node], 0
                    depth += 1
            elif phases[top] == 1:
                held[top], held_total[top], held_least[top], held_most[top] = state
                phases[top] = 2
                nodes[depth], phases[depth] = far[node], 0
                depth += 1
            else:
                state = _combined((held[top], held_total[top], held_least[top], held_most[top]), state)
                depth -= 1
        counts[event], totals[event], leasts[event], mosts[event] = state
    return counts, totals, leasts, mosts


def window_states(h: History, f: Folds, key: Array, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
    """For each event, the number, sum, least and greatest of the visible values of its key.

    Args:
        h: the history.
        f: the states of a value.
        key: of each event, its place in ``h.starts``; -1 for none: int64.
        low: the first time of its window: int64.
        high: the time before which rows must be, and be known: int64.
    """
    return _states(h.roots, h.near, h.far, h.first, h.end, h.known_first, h.known_last, h.time, h.known,
                   f.value, f.valid, f.values, f.total, f.least, f.most, key, low, high)  # fmt: skip


def latest_rows(h: History, valid: Array, key: Array, low: Array, high: Array) -> Array:
    """For each event, the last visible row with a value; -1 without one. Arguments as :func:`window_states`; ``valid``: rows with a value."""
    return last_rows(h, valid, key, low, high, 1, is_dense=True)[1]


def first_rows(h: History, valid: Array, key: Array, low: Array, high: Array) -> Array:
    """For each event, the first visible row with a value; -1 without one. Arguments as :func:`latest_rows`."""
    return _taken(h.roots, h.near, h.far, h.first, h.end, h.known_first, h.time, h.known, valid, key, low, high, 1, True, False)[1]  # fmt: skip


def last_rows(
    h: History, valid: Array, key: Array, low: Array, high: Array, most: int, *, is_dense: bool = False
) -> tuple[Array, Array]:
    """For each event, at most ``most`` of its last visible rows with a value, the latest first: lengths, and all rows one after the other.

    ``is_dense``: an event without a row has a -1. Arguments as :func:`latest_rows`.
    """
    return _taken(h.roots, h.near, h.far, h.first, h.end, h.known_first, h.time, h.known, valid, key, low, high, most, is_dense, True)  # fmt: skip


@compiled
def _taken(
    roots: Array, near: Array, far: Array, first: Array, end: Array, known_first: Array, time: Array, known: Array, valid: Array,
    key: Array, low: Array, high: Array, most: int, is_dense: bool, from_end: bool,
) -> tuple[Array, Array]:  # fmt: skip
    events = len(key)
    lengths, taken, used = np.zeros(events, np.int64), np.empty(max(events, 16), np.int64), 0
    nodes = np.empty(_DEPTH, np.int64)
    for event in range(events):
        if used + most + 1 > len(taken):
            grown = np.empty(2 * len(taken) + most + 1, np.int64)
            grown[:used] = taken[:used]
            taken = grown
        since, before, found = low[event], high[event], 0
        depth = 0
        if key[event] >= 0 and roots[key[event]] >= 0:
            nodes[0], depth = roots[key[event]], 1
        while depth and found < most:
            depth -= 1
            node = nodes[depth]
            if time[end[node] - 1] < since or time[first[node]] >= before or known_first[node] >= before:
                continue
            if near[node] >= 0:  # what is taken first is pushed last
                nodes[depth] = near[node] if from_end else far[node]
                nodes[depth + 1] = far[node] if from_end else near[node]
                depth += 2
                continue
            rows = end[node] - first[node]
            for k in range(rows):
                row = end[node] - 1 - k if from_end else first[node] + k
                if found < most and valid[row] and known[row] < before:
                    taken[used + found] = row
                    found += 1
        if is_dense and found == 0:
            taken[used] = _NONE
            used += 1
        used += found
        lengths[event] = found
    return lengths, taken[:used]
