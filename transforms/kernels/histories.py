"""The trie of a history: rows of many keys, of which an event sees a range, and those of it that are known by then.

For each key its distinct times are the leaves of a binary trie over the bits of a time, so the place of a row follows from its time alone. A state of visible rows is folded along
the trie, and a part without a visible row is left out: the result, to the last bit of a float, is a function of the *set* of visible rows, whatever else the history holds and in
whichever order it came. Each node keeps the fold of all of its rows, so the state of a range costs the two paths from its ends to the node that holds both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from transforms.arrays import Array
from transforms.errors import InputError
from transforms.kernels.compiled import compiled, inlined

_SIGN = np.uint64(1 << 63)
#: A path of the trie has at most one node for each bit of a time, and its leaf.
DEPTH = 130
#: Nodes are numbered in 32 bits, and a row has at most two.
MOST_ROWS = 1 << 30
#: The columns of a node.
PARENT, FIRST, END, NEAR = 0, 1, 2, 3


class Trie(NamedTuple):
    """The tries of all keys. A node comes after its halves, and the later half is the node before it.

    Attributes:
        roots: the root of each key's trie, -1 for a key without rows: int64.
        nodes: by node its parent (-1 of a root), first row, the row after its last one, and the half with the earlier times (-1 of a leaf): int32, 4 columns.
        leaf: the leaf of each row: int32.
        known: from when on each row is known: int64; empty if all are known at their time.
        known_first: by node, the least ``known`` of its rows; empty without it.
        known_last: the greatest.
    """

    roots: Array
    nodes: Array
    leaf: Array
    known: Array
    known_first: Array
    known_last: Array


def trie_of(starts: Array, time: Array, known: Array | None = None) -> Trie:
    """The trie of rows that are sorted by key, then by time.

    Args:
        starts: the first row of each key, and the end: int64.
        time: of each row: int64.
        known: from when on each row is known: int64.

    Raises :class:`InputError` for more rows than nodes can be numbered.
    """
    if len(time) > MOST_ROWS:
        raise InputError("a history must have at most 2**30 rows", value=len(time), next_step="compute fewer partitions at once")  # fmt: skip
    roots, nodes, leaf = _tries(starts, time)
    if known is None:
        none = np.empty(0, np.int64)
        return Trie(roots, nodes, leaf, none, none, none)
    return Trie(roots, nodes, leaf, known, *_known_bounds(nodes, known))


@compiled
def _tries(starts: Array, time: Array) -> tuple[Array, Array, Array]:
    rows, keys = len(time), len(starts) - 1
    nodes = np.empty((max(2 * rows, 1), 4), np.int32)
    leaf = np.empty(rows, np.int32)
    roots = np.full(keys, -1)
    waiting, splits = np.empty(65, np.int64), np.empty(65, np.uint64)
    used = 0
    for key in range(keys):
        depth, row, stop = 0, starts[key], starts[key + 1]
        before = np.uint64(0)
        while row < stop:
            at = time[row]
            place = np.uint64(at) ^ _SIGN
            if row > starts[key]:
                split = before ^ place
                while (
                    depth and splits[depth - 1] < split and splits[depth - 1] < (splits[depth - 1] ^ split)
                ):  # the highest bit is lower
                    depth -= 1
                    _join(nodes, waiting[depth], used)
                    used += 1
                waiting[depth], splits[depth] = used - 1, split
                depth += 1
            nodes[used, PARENT], nodes[used, FIRST], nodes[used, NEAR] = -1, row, -1
            while row < stop and time[row] == at:
                leaf[row] = used
                row += 1
            nodes[used, END] = row
            used += 1
            before = place
        while depth:
            depth -= 1
            _join(nodes, waiting[depth], used)
            used += 1
        if stop > starts[key]:
            roots[key] = used - 1
    return roots, nodes[:used], leaf


@inlined
def _join(nodes: Array, near: int, node: int) -> None:
    nodes[near, PARENT], nodes[node - 1, PARENT] = node, node
    nodes[node, PARENT], nodes[node, NEAR] = -1, near
    nodes[node, FIRST], nodes[node, END] = nodes[near, FIRST], nodes[node - 1, END]


@compiled
def _known_bounds(nodes: Array, known: Array) -> tuple[Array, Array]:
    first, last = np.empty(len(nodes), np.int64), np.empty(len(nodes), np.int64)
    for node in range(len(nodes)):
        near = nodes[node, NEAR]
        if near < 0:
            row = nodes[node, FIRST]
            first[node], last[node] = known[row], known[row]
            for other in range(row + 1, nodes[node, END]):
                first[node], last[node] = min(first[node], known[other]), max(last[node], known[other])
        else:
            first[node], last[node] = min(first[near], first[node - 1]), max(last[near], last[node - 1])
    return first, last
