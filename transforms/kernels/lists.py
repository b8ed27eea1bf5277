"""Kernels over lists as sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Constants, Numbers, RaggedItems, Strings, Vectors, WeightedItems
from transforms.columns.positions import check_positions
from transforms.errors import DataError
from transforms.kernels.buffers import one_buffer, positions, take
from transforms.kernels.compiled import compiled
from transforms.kernels.spans import frozen


def lists_of(column: Column) -> RaggedItems:
    """A column that must be ragged."""
    if not isinstance(column, RaggedItems):
        raise DataError("the argument of a list kernel must be lists", value=type(column).__name__)
    return column


def concat(*columns: Column) -> Column:
    """The lists of each row one after another."""
    lists = [lists_of(column) for column in columns]
    if len(lists) == 1:
        return lists[0]
    parts = [positions(ragged.offsets) for ragged in lists]
    offsets = np.sum(np.stack(parts).astype(np.int64), axis=0)
    check_positions(int(offsets[-1]), "items")
    items = _joined(parts, [ragged.items for ragged in lists], offsets)
    return RaggedItems(offsets.astype(np.int32), items)


def _joined(parts: list[Array], items: list[Numbers | Strings], offsets: Array) -> Numbers | Strings:
    texts = [item for item in items if isinstance(item, Strings)]
    if texts:
        merged = one_buffer(texts)
        starts = _joined_values(parts, [positions(text.starts) for text in merged], offsets)
        return Strings(
            merged[0].data, starts, _joined_values(parts, [positions(text.ends) for text in merged], offsets)
        )
    return Numbers(_joined_values(parts, [item.values for item in items if isinstance(item, Numbers)], offsets))


def _joined_values(parts: list[Array], values: list[Array], offsets: Array) -> Array:
    cursors, joined = offsets[:-1].copy(), np.empty(int(offsets[-1]), values[0].dtype)
    for part, its in zip(parts, values, strict=True):
        _place(part, frozen(its), cursors, joined)
    return joined


def head(column: Column, *, n: int) -> Column:
    """The first n items of each list."""
    ragged = lists_of(column)
    offsets, picks = _head(positions(ragged.offsets), n)
    return RaggedItems(offsets, take(ragged.items, picks))


def count(column: Column) -> Column:
    """The length of each list."""
    return Numbers(np.diff(lists_of(column).offsets).astype(np.int64))


def emptied(column: Column, valid: Array) -> Column:
    """The same lists, those where ``valid`` is False emptied; of vectors, such rows filled with zeros or empty text."""
    if isinstance(column, Vectors):
        every = np.repeat(valid, column.size)
        if isinstance(column.items, Strings):
            ends = np.where(every, column.items.ends, column.items.starts)
            return Vectors(Strings(column.items.data, column.items.starts, ends), column.size)
        zeroed = np.where(every, column.items.values, np.zeros(1, column.items.values.dtype))
        return Vectors(Numbers(zeroed), column.size)
    if not isinstance(column, RaggedItems | WeightedItems):
        raise DataError("only lists and vectors can be emptied", value=type(column).__name__)
    offsets, picks = _emptied(positions(column.offsets), frozen(valid))
    return column if len(picks) == len(column.items) else picked(column, offsets, picks)


def picked(lists: RaggedItems | WeightedItems, offsets: Array, picks: Array) -> RaggedItems | WeightedItems:
    """The items at the positions ``picks``, with their weights where there are any, as lists of these ``offsets``."""
    items = take(lists.items, picks)
    if isinstance(lists, WeightedItems):
        return WeightedItems(offsets, items, lists.weights[picks])
    return RaggedItems(offsets, items)


def without_nulls(lists: RaggedItems) -> RaggedItems:
    """The same lists without their null items."""
    valid = lists.items.valid
    if valid is None:
        return lists
    kept = np.concatenate([[0], np.cumsum(valid)])[lists.offsets].astype(np.int32)
    items = take(replace(lists.items, valid=None), np.flatnonzero(valid))
    return RaggedItems(kept, items)


def spread(column: Column, offsets: Array) -> Column:
    """A dense column with each row's value once for every item of its list; constants stay as they are."""
    if isinstance(column, Constants):
        return column
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    if not isinstance(column, Numbers | Strings):
        raise DataError("only dense columns can be spread over items", value=type(column).__name__)
    return replace(take(column, rows), valid=None if column.valid is None else column.valid[rows])


def take_lists(lists: RaggedItems | WeightedItems, rows: Array) -> RaggedItems | WeightedItems:
    """The lists of the given rows, which may repeat. Moves spans, not bytes."""
    offsets = _taken_offsets(positions(lists.offsets), positions(rows))
    check_positions(int(offsets[-1]), "items")
    kept = offsets.astype(np.int32)
    if isinstance(lists, RaggedItems) and isinstance(lists.items, Numbers):
        values = _taken_values(positions(lists.offsets), frozen(lists.items.values), positions(rows), offsets)
        return RaggedItems(kept, Numbers(values))
    return picked(lists, kept, _taken_picks(positions(lists.offsets), positions(rows), offsets))


def take_vectors(vectors: Vectors, rows: Array) -> Vectors:
    """The vectors of the given rows, which may repeat."""
    picks = (rows[:, None].astype(np.int64) * vectors.size + np.arange(vectors.size)).ravel()
    return Vectors(take(vectors.items, picks), vectors.size)


@compiled
def _place(offsets: Array, values: Array, cursors: Array, joined: Array) -> None:
    """Write each row's values at the row's cursor, and advance it."""
    for row in range(len(cursors)):
        at = cursors[row]
        for i in range(offsets[row], offsets[row + 1]):
            joined[at] = values[i]
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


@compiled
def _taken_values(offsets: Array, values: Array, rows: Array, taken: Array) -> Array:
    out = np.empty(taken[-1], values.dtype)
    for i in range(len(rows)):
        at = taken[i]
        for item in range(offsets[rows[i]], offsets[rows[i] + 1]):
            out[at] = values[item]
            at += 1
    return out
