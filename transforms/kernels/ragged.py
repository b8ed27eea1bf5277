"""Kernels over lists as sequences."""

from __future__ import annotations

import numpy as np

from transforms.columns import Array, Column, Numbers, RaggedItems, Strings
from transforms.errors import DataError
from transforms.kernels.buffers import check_positions, one_buffer, positions, take
from transforms.kernels.compiled import compiled
from transforms.kernels.spans import frozen


def concat(*columns: Column) -> Column:
    """The lists of each row one after another."""
    lists = [_ragged(column) for column in columns]
    if len(lists) == 1:
        return lists[0]
    parts = [positions(ragged.offsets) for ragged in lists]
    offsets = np.sum(np.stack(parts).astype(np.int64), axis=0)
    check_positions(int(offsets[-1]), "items")
    cursors = offsets[:-1].copy()
    picks = np.empty(int(offsets[-1]), np.int32)
    base = 0
    for part in parts:
        _place(part, base, cursors, picks)
        base += int(part[-1])
    return RaggedItems(offsets.astype(np.int32), take(_all_items(lists), picks))


def head(column: Column, *, n: int) -> Column:
    """The first n items of each list."""
    ragged = _ragged(column)
    offsets, picks = _head(positions(ragged.offsets), n)
    return RaggedItems(offsets, take(ragged.items, picks))


def count(column: Column) -> Column:
    """The length of each list."""
    return Numbers(np.diff(_ragged(column).offsets).astype(np.int64))


def emptied(ragged: RaggedItems, valid: Array) -> RaggedItems:
    """The same lists, those where ``valid`` is False emptied."""
    offsets, picks = _emptied(positions(ragged.offsets), frozen(valid))
    if len(picks) == len(ragged.items):
        return ragged
    return RaggedItems(offsets, take(ragged.items, picks))


def take_lists(ragged: RaggedItems, rows: Array) -> RaggedItems:
    """The lists of the given rows, which may repeat. Moves spans, not bytes."""
    offsets = _taken_offsets(positions(ragged.offsets), positions(rows))
    check_positions(int(offsets[-1]), "items")
    picks = _taken_picks(positions(ragged.offsets), positions(rows), offsets)
    return RaggedItems(offsets.astype(np.int32), take(ragged.items, picks))


def _ragged(column: Column) -> RaggedItems:
    if not isinstance(column, RaggedItems):
        raise DataError("a list kernel was given something else", value=type(column).__name__)
    return column


def _all_items(lists: list[RaggedItems]) -> Numbers | Strings:
    texts = [ragged.items for ragged in lists if isinstance(ragged.items, Strings)]
    if not texts:
        return Numbers(np.concatenate([ragged.items.values for ragged in lists if isinstance(ragged.items, Numbers)]))
    merged = one_buffer(texts)
    starts = np.concatenate([positions(text.starts) for text in merged])
    return Strings(merged[0].data, starts, np.concatenate([positions(text.ends) for text in merged]))


@compiled
def _place(offsets: Array, base: int, cursors: Array, picks: Array) -> None:
    """Put the positions of each row's items, counted from ``base``, where the row's cursor stands, and move it."""
    for row in range(len(cursors)):
        at = cursors[row]
        for i in range(offsets[row], offsets[row + 1]):
            picks[at] = base + i
            at += 1
        cursors[row] = at


@compiled
def _head(offsets: Array, n: int) -> tuple[Array, Array]:
    kept, picks = np.empty(len(offsets), np.int32), np.empty(offsets[-1], np.int32)
    at = 0
    kept[0] = 0
    for row in range(len(offsets) - 1):
        size = offsets[row + 1] - offsets[row]
        for i in range(size if size < n else n):
            picks[at] = offsets[row] + i
            at += 1
        kept[row + 1] = at
    return kept, picks[:at]


@compiled
def _emptied(offsets: Array, valid: Array) -> tuple[Array, Array]:
    kept, picks = np.empty(len(offsets), np.int32), np.empty(offsets[-1], np.int32)
    at = 0
    kept[0] = 0
    for row in range(len(valid)):
        if valid[row]:
            for i in range(offsets[row], offsets[row + 1]):
                picks[at] = i
                at += 1
        kept[row + 1] = at
    return kept, picks[:at]


@compiled
def _taken_offsets(offsets: Array, rows: Array) -> Array:
    taken = np.empty(len(rows) + 1, np.int64)
    taken[0] = 0
    for i in range(len(rows)):
        taken[i + 1] = taken[i] + offsets[rows[i] + 1] - offsets[rows[i]]
    return taken


@compiled
def _taken_picks(offsets: Array, rows: Array, taken: Array) -> Array:
    picks = np.empty(taken[-1], np.int32)
    for i in range(len(rows)):
        at = taken[i]
        for item in range(offsets[rows[i]], offsets[rows[i] + 1]):
            picks[at] = item
            at += 1
    return picks
