"""Rows that events see: the first, the latest, or the last few of a range that are known by then."""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled
from transforms.kernels.histories import DEPTH, END, FIRST, NEAR, Trie


@compiled
def valid_before(valid: Array) -> Array:
    """By row, the number of valid rows before it; one more for the end."""
    found = np.empty(len(valid) + 1, np.int64)
    found[0] = 0
    for row in range(len(valid)):
        found[row + 1] = found[row] + valid[row]
    return found


@compiled
def one_of_ranges(first: Array, end: Array, rows: Array, to: Array, size: int, is_last: bool) -> Array:
    """Of each range the entry of ``rows`` at its last or first place, at the event's place among ``size``; -1 without one."""
    found = np.full(size, -1)
    for event in range(len(first)):
        if first[event] < end[event]:
            found[to[event]] = rows[end[event] - 1 if is_last else first[event]]
    return found


@compiled
def list_offsets(first: Array, end: Array, most: int) -> Array:
    """The offsets of lists that hold at most ``most`` rows of each range."""
    offsets = np.empty(len(first) + 1, np.int64)
    offsets[0] = 0
    for event in range(len(first)):
        offsets[event + 1] = offsets[event] + max(min(end[event] - first[event], most), 0)
    return offsets


@compiled
def last_of_ranges(end: Array, offsets: Array) -> Array:
    """The last rows of each range, ascending, as many as lists of these offsets hold."""
    rows = np.empty(offsets[-1], np.int64)
    for event in range(len(end)):
        lost = end[event] - offsets[event + 1]
        for place in range(offsets[event], offsets[event + 1]):
            rows[place] = lost + place
    return rows


def known_rows(trie: Trie, valid: Array, first: Array, end: Array, root: Array, before: Array, most: int, *, from_end: bool) -> tuple[Array, Array]:  # fmt: skip
    """Of each event at most ``most`` valid rows of its range that are known by then, ascending: offsets, and all rows one after the other.

    Args:
        trie: the history, with ``known``.
        valid: which rows have a value: bool.
        first: of each event, the first row of its window: int64.
        end: the row after its last one: int64.
        root: the root of its key: int64.
        before: the time before which rows must be known: int64.
        most: of rows of one event.
        from_end: whether the last rows are taken; otherwise the first ones.
    """
    return _known_rows(trie.nodes, trie.known, trie.known_first, valid, first, end, root, before, most, from_end)


@compiled
def _known_rows(
    nodes: Array, known: Array, known_first: Array, valid: Array, first: Array, end: Array, root: Array, before: Array, most: int, from_end: bool,
) -> tuple[Array, Array]:  # fmt: skip
    events = len(first)
    offsets, taken = np.zeros(events + 1, np.int64), np.empty(max(events, 16), np.int64)
    waiting = np.empty(DEPTH, np.int64)
    used = 0
    for event in range(events):
        if used + most > len(taken):
            grown = np.empty(2 * len(taken) + most, np.int64)
            grown[:used] = taken[:used]
            taken = grown
        since, until, found, depth = first[event], end[event], 0, 0
        if since < until:
            waiting[0], depth = root[event], 1
        while depth and found < most:
            depth -= 1
            node = waiting[depth]
            if nodes[node, END] <= since or nodes[node, FIRST] >= until or known_first[node] >= before[event]:
                continue
            near = nodes[node, NEAR]
            if near >= 0:  # what is taken first is pushed last
                waiting[depth] = near if from_end else node - 1
                waiting[depth + 1] = node - 1 if from_end else near
                depth += 2
                continue
            rows = nodes[node, END] - nodes[node, FIRST]
            for k in range(rows):
                row = nodes[node, END] - 1 - k if from_end else nodes[node, FIRST] + k
                if found < most and valid[row] and known[row] < before[event]:
                    taken[used + found] = row
                    found += 1
        if from_end:
            for k in range(found // 2):
                taken[used + k], taken[used + found - 1 - k] = taken[used + found - 1 - k], taken[used + k]
        used += found
        offsets[event + 1] = used
    return offsets, taken[:used]
