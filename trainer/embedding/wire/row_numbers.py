"""The row numbers of a fetch, table after table: lossless, about one byte each instead of eight.

The ascending rows of a table are written as differences (``ascending.py``), others as int32 or int64, whichever takes the fewest
bytes. Each table begins with a byte: 4 or 8 for plain numbers of so many bytes, 1 for differences, which have their bytes in a uint32
after it. All is little-endian. The numbers of rows by table are not in the buffer: they are in the message.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.embedding.wire.ascending import MOST_BYTES, put_ascending, take_ascending
from trainer.errors import BadBatch

Array = np.ndarray[Any, np.dtype[Any]]

_DIFFERENCES = 1
_PLAIN = {4: np.dtype("<i4"), 8: np.dtype("<i8")}
_FORM_BYTES, _SIZE_BYTES = 1, 4
_INT32 = np.iinfo(np.int32)


def most_bytes(rows: int, tables: int) -> int:
    """The most bytes that :func:`encode` needs."""
    return MOST_BYTES * rows + (_FORM_BYTES + _SIZE_BYTES) * tables


def encode(rows: Array, counts: Array, out: Array) -> int:
    """Write ``rows``, int64, of which each table has ``counts``, into ``out``, uint8; returns the bytes written.

    Raises :class:`BadBatch` for arrays that do not fit, and for an ``out`` of fewer than :func:`most_bytes`.
    """
    if rows.dtype != np.int64 or rows.ndim != 1 or (counts < 0).any() or int(counts.sum()) != len(rows):
        raise BadBatch("row numbers must be as many int64 as their numbers by table", value=(str(rows.dtype), len(rows)),
                       allowed=str(int(counts.sum())))  # fmt: skip
    if out.dtype != np.uint8 or out.ndim != 1 or len(out) < most_bytes(len(rows), len(counts)):
        raise BadBatch("a buffer must hold the most bytes of row numbers", value=(str(out.dtype), out.shape),
                       allowed=f"uint8 ({most_bytes(len(rows), len(counts))},)")  # fmt: skip
    at = first = 0
    for count in counts.tolist():
        at += _encode_table(rows[first : first + count], out[at:])
        first += count
    return at


def _encode_table(rows: Array, out: Array) -> int:
    width = _plain_width(rows)
    header = _FORM_BYTES + _SIZE_BYTES
    size = put_ascending(np.ascontiguousarray(rows), out[header:])
    if size >= 0 and size + _SIZE_BYTES < width * len(rows):
        out[0] = _DIFFERENCES
        out[_FORM_BYTES:header] = np.frombuffer(size.to_bytes(_SIZE_BYTES, "little"), np.uint8)
        return header + size
    out[0] = width
    out[_FORM_BYTES : _FORM_BYTES + width * len(rows)] = rows.astype(_PLAIN[width]).view(np.uint8)
    return _FORM_BYTES + width * len(rows)


def _plain_width(rows: Array) -> int:
    if not len(rows) or (_INT32.min <= int(rows.min()) and int(rows.max()) <= _INT32.max):
        return 4
    return 8


def decode(buffer: Array, counts: Array) -> Array:
    """The rows of a ``buffer``, uint8, int64 in a new array; each table has ``counts``.

    Takes memory of at most 8 bytes for each byte of ``buffer``. Raises :class:`BadBatch` for bytes that no encoder writes.
    """
    if buffer.dtype != np.uint8 or buffer.ndim != 1:
        raise BadBatch("row numbers on the wire must be bytes", value=(str(buffer.dtype), buffer.shape))
    numbers = [int(count) for count in counts]
    if min(numbers, default=0) < 0 or sum(numbers) > len(buffer):
        raise BadBatch("the numbers of rows by table must fit the bytes on the wire", value=numbers[:8], allowed=f"{len(buffer)} in all")
    rows = np.empty(sum(numbers), np.int64)
    at = first = 0
    for t, count in enumerate(numbers):
        size = _decode_table(buffer[at:], rows[first : first + count])
        if size < 0:
            raise BadBatch("row numbers on the wire must be those of an encoder", where=f"table {t}", value=bytes(buffer[at : at + 8]))
        at, first = at + size, first + count
    if at != len(buffer):
        raise BadBatch("row numbers on the wire must end with the last table", value=len(buffer) - at, allowed="0 bytes more")
    return rows


def _decode_table(buffer: Array, out: Array) -> int:
    """Read the rows of one table; returns the bytes read, or -1."""
    form = int(buffer[0]) if len(buffer) else 0
    if form in _PLAIN:
        stop = _FORM_BYTES + form * len(out)
        if stop <= len(buffer):
            out[:] = np.frombuffer(buffer, _PLAIN[form], len(out), _FORM_BYTES)
            return stop
    elif form == _DIFFERENCES:
        header = _FORM_BYTES + _SIZE_BYTES
        stop = header + int.from_bytes(buffer[_FORM_BYTES:header].tobytes(), "little")
        if header <= stop <= len(buffer) and take_ascending(buffer[header:stop], out):
            return stop
    return -1
