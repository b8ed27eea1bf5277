"""Columns in the form that kernels are compiled for: read-only buffers, 32-bit positions.

A batch's text column holds at most 2 GiB and its lists at most 2**31 - 1 items, as Arrow's ``string`` and ``list`` do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, RaggedItems, Strings
from transforms.columns.positions import as_positions, check_positions
from transforms.errors import DataError
from transforms.kernels.compiled import compiled
from transforms.kernels.spans import extent, frozen, most_pieces, shift_spans, total_bytes


def positions(array: Array) -> Array:
    """Starts, ends or offsets as read-only int32. Raises :class:`DataError` if one does not fit."""
    return frozen(as_positions(array))


def spans(strings: Strings) -> tuple[Array, Array, Array]:
    """(data, starts, ends) of a text column, ready for a kernel."""
    return frozen(strings.data), positions(strings.starts), positions(strings.ends)


def piece_bound(starts: Array, ends: Array) -> int:
    """:func:`most_pieces` of these spans, which positions must be able to count. Raises :class:`DataError`."""
    bound = int(most_pieces(starts, ends))
    check_positions(bound, "pieces of text")
    return bound


def byte_bound(starts: Array, ends: Array) -> int:
    """:func:`total_bytes` of these spans, which positions must be able to count. Raises :class:`DataError`."""
    total = int(total_bytes(starts, ends))
    check_positions(total, "bytes of text")
    return total


def take(items: Numbers | Strings, picks: Array) -> Numbers | Strings:
    """The items at the positions ``picks``. Moves spans, not bytes."""
    if isinstance(items, Numbers):
        return Numbers(taken(items.values, picks))
    return Strings(items.data, taken(positions(items.starts), picks), taken(positions(items.ends), picks))


def dense(column: Column) -> Numbers | Strings:
    """The column, which must have one value per row."""
    if not isinstance(column, Numbers | Strings):
        raise DataError("the argument of the kernel must be one value per row", value=type(column).__name__)
    return column


@compiled
def _taken(values: Array, picks: Array) -> Array:
    out = np.empty(len(picks), values.dtype)
    for i in range(len(picks)):
        out[i] = values[picks[i]]
    return out


def taken(values: Array, picks: Array) -> Array:
    """``values[picks]`` for 32-bit positions, which numpy would widen first."""
    gathered: Array = _taken(frozen(values), positions(picks))
    return gathered


def rows_of(column: Column) -> tuple[Array, Numbers | Strings]:
    """(offsets, items) of a ragged column; a dense one counts as lists of one item."""
    if isinstance(column, RaggedItems):
        return positions(column.offsets), column.items
    return frozen(np.arange(len(column) + 1, dtype=np.int32)), dense(column)


def one_buffer(columns: Sequence[Strings]) -> list[Strings]:
    """The same texts with all spans over one buffer; several buffers are copied."""
    if len({_address(column.data) for column in columns}) == 1:
        return list(columns)
    extents = [extent(*spans(column)[1:]) for column in columns]
    check_positions(sum(high - low for low, high in extents), "bytes of text")
    moved: list[Strings] = []
    pieces: list[Array] = []
    at = 0
    for column, (low, high) in zip(columns, extents, strict=True):
        data, starts, ends = spans(column)
        starts, ends = shift_spans(starts, ends, at - low)
        moved.append(Strings(data, starts, ends, column.valid))
        pieces.append(data[low:high])
        at += high - low
    merged = np.concatenate(pieces)
    return [Strings(merged, column.starts, column.ends, column.valid) for column in moved]


def _address(data: Array) -> tuple[int, int]:
    return data.__array_interface__["data"][0], len(data)
