"""Reading a memo file into Arrow columns; every stored byte is verified before it is decoded."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from transforms.errors import DataError
from transforms.kernels.text_validity import check_array
from transforms.types import DType
from warehouse.files.memo_format.bit_packing import Array
from warehouse.files.memo_format.column_kinds import Kind, arrow_of
from warehouse.files.memo_format.directory import (
    ALIGNMENT_BYTES,
    HEAD,
    MAGIC,
    NONE,
    ColumnRecord,
    Directory,
    segment_checksum,
)
from warehouse.files.memo_format.encoding import (
    Encoding,
    decode_bits,
    decode_bytes,
    decode_integers,
    decode_offsets,
    most_constants,
)

#: The first bytes to read: head and directory of most files.
_FIRST_BYTES = 64 << 10
_NARROW = np.dtype(np.int32)
_WIDE = np.dtype(np.int64)


from_buffers = pa.Array.from_buffers


class Source(Protocol):
    """A file that is open for random reads."""

    def size(self) -> int:
        """Its size in bytes."""

    def seek(self, position: int, /) -> Any:
        """Set the position."""

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer and return the number of bytes read."""


def read_first(source: Source) -> bytes:
    """The first bytes of a file: head and directory of most files."""
    return bytes(read_range(source, 0, min(_FIRST_BYTES, source.size())))


def read_directory(source: Source, first_bytes: bytes) -> bytes:
    """The stored directory of a file that begins with ``first_bytes``. Raises :class:`DataError`."""
    if len(first_bytes) < HEAD.size:
        raise DataError("the memo file is truncated", value=f"{len(first_bytes)} bytes")
    magic, length = HEAD.unpack_from(first_bytes)
    if magic != MAGIC:
        raise DataError("the file is not a memo file", value=magic, allowed=MAGIC.decode())
    end = HEAD.size + length
    if end > source.size():
        raise DataError("the memo file is truncated", value=f"{source.size()} bytes", allowed=f"{end} and more")
    if end > len(first_bytes):
        first_bytes += bytes(read_range(source, len(first_bytes), end))
    return first_bytes[HEAD.size : end]


def read_range(source: Source, start: int, end: int) -> Array:
    """The bytes ``[start, end)`` of the file, 8-byte aligned. Raises :class:`DataError` if fewer are read."""
    whole = np.empty(-(-(end - start) // 8), np.int64).view(np.uint8)[: end - start]
    if len(whole):
        source.seek(start)
        got = source.readinto(whole.data)
        if got != len(whole):
            raise DataError("the memo file is truncated", value=f"{got} bytes from {start}", allowed=f"{len(whole)}")
    return whole


def read_memo_columns(
    source: Source, directory: Directory, names: Iterable[str], gap_bytes: int, rows: int | None = None
) -> dict[str, pa.Array]:
    """Read and verify columns; gaps of more than ``gap_bytes`` between them are skipped.

    ``rows``: the rows that they must have, if known. Raises :class:`DataError` for an invalid directory and for bytes that do not
    match it. Memory is in proportion to the rows and the stored bytes.
    """
    if rows is not None and directory.rows != rows:
        raise DataError("a memo file must have the rows of its fragment", value=directory.rows, allowed=str(rows))
    size_bytes = source.size()
    if size_bytes != directory.file_bytes:
        raise DataError("the memo file is truncated", value=f"{size_bytes} bytes", allowed=str(directory.file_bytes))
    chosen = {name: directory.columns[name] for name in names}
    decoder = _Decoder(directory.rows)
    for stretch in directory.stretches(chosen.values(), gap_bytes):
        start = stretch[0][1].position
        end = max(segment.position + segment.stored_bytes for _, segment in stretch)
        if end > size_bytes:
            raise DataError("a segment must be inside its file", value=end, allowed=str(size_bytes))
        if any(one.position + one.stored_bytes > other.position for (_, one), (_, other) in pairwise(stretch)):
            raise DataError("the segments of a file must not overlap", value=start)
        content = read_range(source, start, end)
        for place, segment in stretch:
            first = segment.position - start
            stored = content[first : first + segment.stored_bytes]
            if first % ALIGNMENT_BYTES or segment_checksum(stored) != segment.checksum:
                raise DataError("the memo does not have the bytes that were committed",
                                value=segment_checksum(stored).hex(), allowed=segment.checksum.hex())  # fmt: skip
            decoder.segments[place] = segment.encoding, stored
    return {name: decoder.column(column) for name, column in chosen.items()}


class _Decoder:
    """Decodes columns from verified bytes; shared segments are decoded once, so lists of one shape share their offsets."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._constants = most_constants(rows)
        self._offsets: dict[int, tuple[pa.Buffer, int]] = {}
        #: Encoding and stored bytes by index.
        self.segments: dict[int, tuple[Encoding, Array]] = {}

    def column(self, column: ColumnRecord) -> pa.Array:
        """One column in the layout of its type."""
        kind, element, size, valid, lengths, *_ = column
        stored, arrow, item = arrow_of(kind, element, size)
        rows = self._rows
        present = None if valid == NONE else decode_bits(*self._of(valid, rows))
        if stored.kind is Kind.DENSE:
            return self._elements(column, stored.element, arrow, rows, present)
        if stored.kind is Kind.VECTOR:
            items = self._elements(column, stored.element, item, rows * stored.size)
            return from_buffers(arrow, rows, [None], 0, 0, [items])
        offsets, count = self._offsets_of(lengths, rows)
        items = self._elements(column, stored.element, item, count)
        if stored.kind is Kind.WEIGHTED:
            weights = self._numbers(column.weights, DType.FLOAT32, pa.float32(), count)
            items = from_buffers(arrow.value_type, count, [None], 0, 0, [items, weights])
        return from_buffers(arrow, rows, [present, offsets], -1 if present else 0, 0, [items])

    def _elements(
        self, column: ColumnRecord, element: DType, arrow: pa.DataType, count: int, present: pa.Buffer | None = None
    ) -> pa.Array:
        if element is not DType.STRING:
            return self._numbers(column.values, element, arrow, count, present)
        offsets, total = self._offsets_of(column.values, count)
        text = decode_bytes(*self._of(column.text, total))
        array = from_buffers(arrow, count, [present, offsets, text], -1 if present else 0)
        check_array(array)
        return array

    def _numbers(
        self, place: int, element: DType, arrow: pa.DataType, count: int, present: pa.Buffer | None = None
    ) -> pa.Array:
        encoding, stored = self._of(place, count)
        if element is DType.BOOL:
            values = decode_bits(encoding, stored)
        else:
            kind = _NARROW if element is DType.FLOAT32 else _WIDE
            values = pa.py_buffer(decode_integers(encoding, stored, kind, self._constants))
        return from_buffers(arrow, count, [present, values], -1 if present else 0)

    def _offsets_of(self, place: int, rows: int) -> tuple[pa.Buffer, int]:
        encoding, stored = self._of(place, rows)
        if place not in self._offsets:
            offsets, total = decode_offsets(encoding, stored, self._constants)
            self._offsets[place] = pa.py_buffer(offsets), total
        return self._offsets[place]

    def _of(self, place: int, count: int) -> tuple[Encoding, Array]:
        """The segment at an index. Raises :class:`DataError` unless it has ``count`` values."""
        found = self.segments.get(place)
        if found is None or found[0].values != count:
            raise DataError("a segment must have as many values as its column", value=found and found[0].values,
                            allowed=str(count))  # fmt: skip
        return found
