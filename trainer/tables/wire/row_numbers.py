"""The row numbers of a fetch, table after table: lossless, 1 to 2 bytes each instead of 8.

The ascending rows of a table are written as differences (``ascending.py``), others as int32 or int64, whichever takes the fewest
bytes. Each table begins with a byte: 4 or 8 for plain numbers of so many bytes; 1 for differences, and then a uint32, their size in bytes. All is little-endian. The numbers of rows by table are not in the buffer: they are in the message, beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.errors import BadBatch
from trainer.tables.wire.ascending import MOST_BYTES, put_ascending, take_ascending
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined

#: The first byte of a table; plain numbers have their width.
_DIFFERENCES, _NARROW, _WIDE = 1, 4, 8
_FORM_BYTES, _SIZE_BYTES = 1, 4
_HEADER_BYTES = _FORM_BYTES + _SIZE_BYTES
_LEAST_NARROW, _MOST_NARROW = -(2**31), 2**31 - 1
_GOOD = -1


def most_bytes(rows: int, tables: int) -> int:
    """The most bytes that :func:`encode` needs."""
    return MOST_BYTES * rows + _HEADER_BYTES * tables


def encode(rows: Array, counts: Array, out: Array) -> int:
    """Write ``rows``, int64, of which each table has ``counts``, into ``out``, uint8; returns the bytes written.

    Raises :class:`BadBatch` for arrays that do not fit, and for an ``out`` of fewer than :func:`most_bytes`.
    """
    if rows.dtype != np.int64 or rows.ndim != 1 or (counts < 0).any() or int(counts.sum()) != len(rows):
        raise BadBatch("row numbers must be int64, as many as the counts by table add up to", value=(str(rows.dtype), len(rows)),
                       allowed=str(int(counts.sum())))  # fmt: skip
    if out.dtype != np.uint8 or out.ndim != 1 or len(out) < most_bytes(len(rows), len(counts)):
        raise BadBatch("a buffer must have space for the longest encoding of the row numbers", value=(str(out.dtype), out.shape),
                       allowed=f"uint8 ({most_bytes(len(rows), len(counts))},)")  # fmt: skip
    return int(_encode_tables(np.ascontiguousarray(rows), counts.astype(np.int64), out))


@inlined
def _put_plain(number: int, width: int, out: Array, at: int) -> None:
    for k in range(width):
        out[at + k] = np.uint8(number >> (8 * k))


@inlined
def _take_plain(buffer: Array, at: int, width: int) -> int:
    number: Any = np.int64(np.int8(buffer[at + width - 1]))
    for k in range(width - 2, -1, -1):
        number = (number << 8) | np.int64(buffer[at + k])
    taken: int = number
    return taken


@inlined
def _plain_width(rows: Array, first: int, stop: int) -> int:
    for i in range(first, stop):
        if rows[i] < _LEAST_NARROW or rows[i] > _MOST_NARROW:
            return _WIDE
    return _NARROW


@compiled
def _encode_tables(rows: Array, counts: Array, out: Array) -> int:
    """Write all tables; returns the bytes written."""
    at = first = 0
    for count in counts:
        width = _plain_width(rows, first, first + count)
        size = put_ascending(rows[first : first + count], out[at + _HEADER_BYTES :])
        if size >= 0 and size + _SIZE_BYTES < width * count:
            out[at] = _DIFFERENCES
            _put_plain(size, _SIZE_BYTES, out, at + _FORM_BYTES)
            at += _HEADER_BYTES + size
        else:
            out[at] = width
            at += _FORM_BYTES
            for i in range(first, first + count):
                _put_plain(rows[i], width, out, at)
                at += width
        first += count
    return at


def decode(buffer: Array, counts: Array) -> Array:
    """The rows of a ``buffer``, uint8, int64 in a new array; each table has ``counts``.

    Takes memory of at most 8 bytes for each byte of ``buffer``. Raises :class:`BadBatch` for bytes that no encoder writes.
    """
    if buffer.dtype != np.uint8 or buffer.ndim != 1 or not buffer.flags.c_contiguous:
        raise BadBatch("row numbers on the wire must be bytes", value=(str(buffer.dtype), buffer.shape))
    numbers = [int(count) for count in counts]
    if min(numbers, default=0) < 0 or sum(numbers) > len(buffer):
        raise BadBatch(
            "the numbers of rows by table must fit the bytes on the wire",
            value=numbers[:8],
            allowed=f"{len(buffer)} in all",
        )
    rows = np.empty(sum(numbers), np.int64)
    bad = _decode_tables(buffer, np.array(numbers, np.int64), rows)
    if bad != _GOOD:
        raise BadBatch(
            "row numbers on the wire must be bytes that the encoder writes",
            where=f"table {bad} of {len(numbers)}",
            value=len(buffer),
        )
    return rows


@compiled
def _decode_tables(buffer: Array, counts: Array, rows: Array) -> int:
    """Read all tables; returns the first that no encoder writes, their number if bytes are left over, or _GOOD."""
    at = first = 0
    for t in range(len(counts)):
        count, left = counts[t], len(buffer) - at
        form: Any = np.int64(buffer[at]) if left else np.int64(0)
        at += _FORM_BYTES
        if form in (_NARROW, _WIDE):
            if left < _FORM_BYTES + form * count:
                return t
            for i in range(first, first + count):
                rows[i] = _take_plain(buffer, at, form)
                at += form
        else:
            if form != _DIFFERENCES or left < _HEADER_BYTES:
                return t
            size = _take_plain(buffer, at, _SIZE_BYTES)
            at += _SIZE_BYTES
            if (
                size < 0
                or size > left - _HEADER_BYTES
                or not take_ascending(buffer[at : at + size], rows[first : first + count])
            ):
                return t
            at += size
        first += count
    return _GOOD if at == len(buffer) else len(counts)
