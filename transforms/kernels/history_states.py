"""States of the rows that events see: how many have a value, their sum, and the least and the greatest one.

A decayed sum is as of the greatest rank, which is then a time: the sum of two sets is that of the earlier one, decayed to the time of the later one, plus
that of the later one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, vectorised
from transforms.kernels.histories import DEPTH, END, FIRST, NEAR, PARENT, Trie

#: The columns of a state: the number of values, their sum (the bits of a float64), and the least and the greatest rank.
COUNT, SUM, LEAST, MOST = 0, 1, 2, 3
_LN2 = 0.6931471805599453
#: The exponential series from its last term on: a smaller one changes no sum of at least a half.
_SERIES = tuple(1.0 / math.factorial(k) for k in range(21, -1, -1))
_NO_LEAST, _NO_MOST = (1 << 63) - 1, -(1 << 63)


class Values(NamedTuple):
    """The value of each row of a history, in its order.

    Attributes:
        number: what is summed: float64.
        low: ranks, of which the least is found: int64.
        high: ranks, of which the greatest is found: int64.
        valid: which rows have a value: bool.
        half_life: 0, or the difference of ``high`` after which a number counts half.
    """

    number: Array
    low: Array
    high: Array
    valid: Array
    half_life: float = 0.0


def node_states(trie: Trie, values: Values) -> Array:
    """The state of the rows below each node, folded along the trie: int64, 4 columns."""
    return _folded(trie.nodes, *values)


def write_states(trie: Trie, values: Values, states: Array, climbs: Array, first: Array, end: Array, root: Array, before: Array, begin: int, stop: int, to: Array, out: Array) -> None:  # fmt: skip
    """Write the states of the rows that events see: of rows in ``[first, end)`` those with a value that are known by then.

    That of an event without rows is left as it is.

    Args:
        trie: the history.
        values: of its rows.
        states: of :func:`node_states`.
        climbs: of :func:`new_climbs`, or as another call with the same ``end`` has left them; then windows that are longer than its ones begin where it has ended.
        first: of each event, the first row of its window: int64.
        end: the row after its last one; both are ends of leaves: int64.
        root: the root of its key: int64.
        before: the time before which rows must be known; not read without ``trie.known``: int64.
        begin: the first event.
        stop: the event after the last one.
        to: the place of each event in ``out``: int64.
        out: the states of events: int64, 4 columns.
    """
    _written(trie.nodes, trie.leaf, trie.known, trie.known_first, trie.known_last, *values, states, states.view(np.float64), climbs, climbs.view(np.float64),
             first, end, root, before, begin, stop, to, out, out.view(np.float64))  # fmt: skip


def new_climbs(events: int) -> Array:
    """By event the node to which the end of its range has climbed (-1: not yet), the greatest known time on the way, and the state of the way: int64, 6 columns."""
    climbs = np.empty((events, 6), np.int64)
    climbs[:, 0] = -1
    return climbs


@vectorised
def decay(half_lives: float) -> float:
    """2 to the power of ``-half_lives``, of at least 0, by steps that are the same on every machine; 0 from 1022 on."""
    if not half_lives < 1022:
        return 0.0
    whole = np.floor(half_lives)
    x, power = (whole - half_lives) * _LN2, 0.0
    for one in _SERIES:
        power = power * x + one
    return math.ldexp(power, -int(whole))


@vectorised
def decayed_to(at: Array, states: Array, total: Array, half_life: float) -> Array:
    """The decayed sums of events at their times, 0 without rows. ``total``: those of ``states``, which are as of their greatest times."""
    out = np.zeros(len(at))
    for event in range(len(at)):
        if states[event, COUNT]:
            out[event] = total[event] * decay((np.uint64(at[event]) - np.uint64(states[event, MOST])) / half_life)
    return out


@inlined
def combined(
    a: tuple[int, float, int, int], b: tuple[int, float, int, int], half_life: float
) -> tuple[int, float, int, int]:
    """The state of two disjoint sets of rows, the earlier one first; an empty one changes no bit of the other."""
    if a[0] == 0:
        return b
    if b[0] == 0:
        return a
    earlier = a[1]
    if half_life > 0:
        earlier *= decay((np.uint64(b[3]) - np.uint64(a[3])) / half_life)
    return a[0] + b[0], earlier + b[1], min(a[2], b[2]), max(a[3], b[3])


@inlined
def _of_rows(
    first: int,
    end: int,
    known: Array,
    before: int,
    number: Array,
    low: Array,
    high: Array,
    valid: Array,
    half_life: float,
) -> tuple[int, float, int, int]:
    """The state of rows of one time that are known before a time, folded in their order."""
    state = (0, 0.0, _NO_LEAST, _NO_MOST)
    for row in range(first, end):
        if valid[row] and (len(known) == 0 or known[row] < before):
            state = combined(state, (1, number[row], low[row], high[row]), half_life)
    return state


@compiled
def _folded(nodes: Array, number: Array, low: Array, high: Array, valid: Array, half_life: float) -> Array:
    out = np.empty((len(nodes), 4), np.int64)
    sums = out.view(np.float64)
    everything = np.empty(0, np.int64)
    for node in range(len(nodes)):
        near = nodes[node, NEAR]
        if near < 0:
            state = _of_rows(nodes[node, FIRST], nodes[node, END], everything, 0, number, low, high, valid, half_life)
        else:
            state = combined(_read(out, sums, near), _read(out, sums, node - 1), half_life)
        _write(out, sums, node, state)
    return out


@inlined
def _read(states: Array, sums: Array, at: int) -> tuple[int, float, int, int]:
    return states[at, COUNT], sums[at, SUM], states[at, LEAST], states[at, MOST]


@inlined
def _write(states: Array, sums: Array, at: int, state: tuple[int, float, int, int]) -> None:
    states[at, COUNT], states[at, LEAST], states[at, MOST] = state[0], state[2], state[3]
    sums[at, SUM] = state[1]


@compiled
def _of_known_rows(
    nodes: Array, known: Array, known_first: Array, known_last: Array, number: Array, low: Array, high: Array, valid: Array, half_life: float,
    states: Array, sums: Array, root: int, since: int, until: int, before: int,
) -> tuple[int, float, int, int]:  # fmt: skip
    """The state of the rows in ``[since, until)`` that are known before a time: nodes with others are looked into.

    The stack holds nodes, what of each is done (nothing, its earlier half, both), and the state of its earlier half: numba's cache cannot hold functions
    that call themselves.
    """
    waiting, phases = np.empty(DEPTH, np.int64), np.empty(DEPTH, np.int64)
    held = np.empty((DEPTH, 4), np.int64)
    held_sums = held.view(np.float64)
    state = (0, 0.0, _NO_LEAST, _NO_MOST)
    depth = 1
    waiting[0], phases[0] = root, 0
    while depth:
        top = depth - 1
        node = waiting[top]
        if phases[top] == 0:
            if nodes[node, END] <= since or nodes[node, FIRST] >= until or known_first[node] >= before:
                state = (0, 0.0, _NO_LEAST, _NO_MOST)
                depth -= 1
            elif nodes[node, FIRST] >= since and nodes[node, END] <= until and known_last[node] < before:
                state = _read(states, sums, node)
                depth -= 1
            elif nodes[node, NEAR] < 0:
                state = _of_rows(
                    nodes[node, FIRST], nodes[node, END], known, before, number, low, high, valid, half_life
                )
                depth -= 1
            else:
                phases[top] = 1
                waiting[depth], phases[depth] = nodes[node, NEAR], 0
                depth += 1
        elif phases[top] == 1:
            _write(held, held_sums, top, state)
            phases[top] = 2
            waiting[depth], phases[depth] = node - 1, 0
            depth += 1
        else:
            state = combined(_read(held, held_sums, top), state, half_life)
            depth -= 1
    return state


@compiled
def _written(
    nodes: Array, leaf: Array, known: Array, known_first: Array, known_last: Array, number: Array, low: Array, high: Array, valid: Array, half_life: float,
    states: Array, sums: Array, climbs: Array, climb_sums: Array, first: Array, end: Array, root: Array, before: Array, begin: int, stop: int, to: Array,
    out: Array, out_sums: Array,
) -> None:  # fmt: skip
    is_late = len(known) > 0
    for event in range(begin, stop):
        since, until = first[event], end[event]
        if since >= until:
            continue
        a, b = leaf[since], leaf[until - 1]
        state = _read(states, sums, a)
        latest = known_last[a] if is_late else 0
        if a != b:
            parent = nodes[a, PARENT]
            while nodes[parent, END] < until:
                if nodes[parent, NEAR] == a:
                    state = combined(state, _read(states, sums, parent - 1), half_life)
                    latest = max(latest, known_last[parent - 1]) if is_late else 0
                a, parent = parent, nodes[parent, PARENT]
            later, latest_way = _read(states, sums, b), known_last[b] if is_late else 0
            if climbs[event, 0] >= 0 and nodes[climbs[event, 0], FIRST] > since:
                b, latest_way = climbs[event, 0], climbs[event, 1]
                later = (climbs[event, 2], climb_sums[event, 3], climbs[event, 4], climbs[event, 5])
            parent = nodes[b, PARENT]
            while nodes[parent, FIRST] > since:
                near = nodes[parent, NEAR]
                if near != b:
                    later = combined(_read(states, sums, near), later, half_life)
                    latest_way = max(latest_way, known_last[near]) if is_late else 0
                b, parent = parent, nodes[parent, PARENT]
            climbs[event, 0], climbs[event, 1], climbs[event, 2], climbs[event, 4], climbs[event, 5] = (
                b,
                latest_way,
                later[0],
                later[2],
                later[3],
            )
            climb_sums[event, 3] = later[1]
            latest = max(latest, latest_way)
            state = combined(state, later, half_life)
        if is_late and latest >= before[event]:
            state = _of_known_rows(nodes, known, known_first, known_last, number, low, high, valid, half_life, states, sums, root[event], since, until, before[event])  # fmt: skip
        _write(out, out_sums, to[event], state)
