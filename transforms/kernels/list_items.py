"""Kernels that select, number and find items of lists."""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, RaggedItems, Strings, Vectors
from transforms.columns.positions import POSITION_MAX, check_positions
from transforms.errors import DataError
from transforms.kernels.buffers import one_buffer, positions, spans, take
from transforms.kernels.compiled import compiled
from transforms.kernels.lists import lists_of
from transforms.kernels.spans import frozen

Value = bool | int | float | str


def tail(column: Column, *, n: int) -> Column:
    """The last n items of each list."""
    ragged = lists_of(column)
    offsets, picks = _tail(positions(ragged.offsets), n)
    return RaggedItems(offsets, take(ragged.items, picks))


def keep(column: Column, mask: Column) -> Column:
    """The items of each list where the mask holds. Raises :class:`DataError` naming a row of other lengths."""
    ragged, holds = lists_of(column), lists_of(mask)
    assert isinstance(holds.items, Numbers), "a mask is of bools"
    check_same_lengths(ragged.offsets, holds.offsets, "its mask", "fill the nulls of what makes the mask")
    offsets, picks = _kept(positions(ragged.offsets), frozen(holds.items.values))
    return RaggedItems(offsets, take(ragged.items, picks))


def check_same_lengths(offsets: Array, others: Array, what: str, next_step: str) -> None:
    """Raise :class:`DataError` for the first row whose two lists differ in length; ``what`` is the second."""
    differing = np.flatnonzero(np.diff(offsets) != np.diff(others))
    if len(differing):
        row = int(differing[0])
        lengths = int(offsets[row + 1] - offsets[row]), int(others[row + 1] - others[row])
        raise DataError(f"a list and {what} must have equal lengths", where=f"row {row}", value=lengths,
                        allowed="equal lengths in every row", next_step=next_step)  # fmt: skip


def pad(column: Column, *, size: int, value: Value) -> Column:
    """The first ``size`` items of each list as a vector, filled up with ``value``."""
    ragged = lists_of(column)
    rows = len(ragged)
    check_positions(rows * size, "values of vectors")
    kept, picks = _first(positions(ragged.offsets), size)
    places = _places(kept, size)
    if isinstance(ragged.items, Numbers):
        with np.errstate(over="ignore"):
            filled = np.full(rows * size, value, ragged.items.values.dtype)
        filled[places] = ragged.items.values[picks]
        return Vectors(Numbers(filled), size)
    text = frozen(np.frombuffer(str(value).encode(), np.uint8))
    filling = Strings(text, np.zeros(1, np.int32), np.full(1, len(text), np.int32))
    items, filling = one_buffer([ragged.items, filling])
    starts, ends = np.repeat(filling.starts, rows * size), np.repeat(filling.ends, rows * size)
    starts[places], ends[places] = items.starts[picks], items.ends[picks]
    return Vectors(Strings(items.data, starts, ends), size)


def item_positions(column: Column, *, limit: int) -> Column:
    """0, 1, 2, ... for the items of each list, at most ``limit`` - 1 unless that is 0."""
    offsets = positions(lists_of(column).offsets)
    return RaggedItems(offsets, Numbers(_item_positions(offsets, limit or POSITION_MAX)))


def contains_item(column: Column, *, value: Value) -> Column:
    """Whether any item of each list equals ``value``."""
    ragged = lists_of(column)
    return Numbers(_any_of_each(positions(ragged.offsets), frozen(_equal(ragged.items, value))))


def _equal(items: Numbers | Strings, value: Value) -> Array:
    if isinstance(items, Strings):
        equal: Array = _equal_text(*spans(items), frozen(np.frombuffer(str(value).encode(), np.uint8)))
        return equal
    values = items.values
    same: Array = (values.astype(np.float64, copy=False) if values.dtype.kind == "f" else values) == value
    return same


@compiled
def _tail(offsets: Array, n: int) -> tuple[Array, Array]:
    kept, picks = np.empty(len(offsets), np.int32), np.empty(offsets[-1], np.int32)
    at = 0
    kept[0] = 0
    for row in range(len(offsets) - 1):
        size = offsets[row + 1] - offsets[row]
        for i in range(offsets[row + 1] - (size if size < n else n), offsets[row + 1]):
            picks[at] = i
            at += 1
        kept[row + 1] = at
    return kept, picks[:at]


@compiled
def _kept(offsets: Array, mask: Array) -> tuple[Array, Array]:
    kept, picks = np.empty(len(offsets), np.int32), np.empty(offsets[-1], np.int32)
    at = 0
    kept[0] = 0
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            picks[at] = i
            at += mask[i]
        kept[row + 1] = at
    return kept, picks[:at]


@compiled
def _places(offsets: Array, size: int) -> Array:
    """The position of each item if every list has ``size`` places."""
    places = np.empty(offsets[-1], np.int32)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            places[i] = row * size + i - offsets[row]
    return places


@compiled
def _item_positions(offsets: Array, limit: int) -> Array:
    numbered = np.empty(offsets[-1], np.int64)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            numbered[i] = min(i - offsets[row], limit - 1)
    return numbered


@compiled
def _any_of_each(offsets: Array, hits: Array) -> Array:
    found = np.zeros(len(offsets) - 1, np.bool_)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            found[row] |= hits[i]
    return found


@compiled
def _equal_text(data: Array, starts: Array, ends: Array, value: Array) -> Array:
    equal = np.zeros(len(starts), np.bool_)
    for i in range(len(starts)):
        if ends[i] - starts[i] != len(value):
            continue
        same = True
        for j in range(len(value)):
            if data[starts[i] + j] != value[j]:
                same = False
                break
        equal[i] = same
    return equal


@compiled
def _first(offsets: Array, n: int) -> tuple[Array, Array]:
    """The ends of each list's first n items, and their positions."""
    kept, picks = np.empty(len(offsets), np.int32), np.empty(offsets[-1], np.int32)
    at = 0
    kept[0] = 0
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], min(offsets[row + 1], offsets[row] + n)):
            picks[at] = i
            at += 1
        kept[row + 1] = at
    return kept, picks[:at]
