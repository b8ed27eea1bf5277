"""From the bytes of a memo file to Arrow columns. Every stored byte is verified before it is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from transforms.errors import DataError
from transforms.types import ARROW_ELEMENT, DType
from warehouse.memo_format.bit_packing import Array
from warehouse.memo_format.column_kinds import Kind, arrow_of
from warehouse.memo_format.directory import (
    HEAD,
    MAGIC,
    NONE,
    Column,
    Directory,
    Segment,
    segment_checksum,
)
from warehouse.memo_format.encoding import (
    decode_bits,
    decode_bytes,
    decode_integers,
    decode_offsets,
)

#: What is read first: head and directory of most files.
_FIRST_BYTES = 64 << 10
_PATTERN = {DType.FLOAT32: np.dtype(np.int32)}
_WIDE = np.dtype(np.int64)


class Source(Protocol):
    """A file that is open for random reads."""

    def size(self) -> int:
        """Its bytes."""

    def seek(self, position: int, /) -> Any:
        """Go there."""

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer; returns how many bytes were there."""


def read_first(source: Source) -> bytes:
    """So many bytes from the beginning as most directories need; all bytes of a shorter file."""
    return bytes(read_range(source, 0, min(_FIRST_BYTES, source.size())))


def read_directory(source: Source, begun: bytes) -> bytes:
    """The stored directory of a file that begins with ``begun``. Raises :class:`DataError`."""
    if len(begun) < HEAD.size:
        raise DataError("a memo file is cut off", value=f"{len(begun)} bytes")
    magic, length = HEAD.unpack_from(begun)
    if magic != MAGIC:
        raise DataError("not a memo file", value=magic, allowed=MAGIC.decode())
    end = HEAD.size + length
    if end > source.size():
        raise DataError("a memo file is cut off", value=f"{source.size()} bytes", allowed=f"{end} and more")
    if end > len(begun):
        begun += bytes(read_range(source, len(begun), end))
    return begun[HEAD.size : end]


def read_range(source: Source, start: int, end: int) -> Array:
    """The bytes ``[start, end)``, at an address that is a multiple of 8. Raises :class:`DataError` when they are not there."""
    if not 0 <= start <= end <= source.size():
        raise DataError("a memo file is cut off", value=f"{source.size()} bytes", allowed=f"{end} and more")
    whole = np.empty(-(-(end - start) // 8), np.int64).view(np.uint8)[: end - start]
    if len(whole):
        source.seek(start)
        got = source.readinto(whole.data)
        if got != len(whole):
            raise DataError("a memo file is cut off", value=f"{got} bytes from {start}", allowed=f"{len(whole)}")
    return whole


def read_columns(source: Source, directory: Directory, names: Iterable[str], gap_bytes: int) -> dict[str, pa.Array]:
    """These columns, each verified; no stretch of more than ``gap_bytes`` that they do not need is read.

    Raises :class:`DataError` for bytes that are not what the directory says, and for a directory that no writer made.
    """
    if source.size() != directory.end:
        raise DataError("a memo file is cut off", value=f"{source.size()} bytes", allowed=str(directory.end))
    names = list(names)
    contents: dict[int, Array] = {}
    for start, end, places in directory.ranges(names, gap_bytes):
        stretch = read_range(source, start, end)
        for place in places:
            segment = directory.segments[place]
            contents[place] = _verified(segment, stretch[segment.position - start :][: segment.stored_bytes])
    decoder = _Decoder(directory, contents)
    return {name: decoder.column(directory.columns[name]) for name in names}


def _verified(segment: Segment, stored: Array) -> Array:
    if segment.position % 8 or segment_checksum(stored) != segment.checksum:
        raise DataError("a memo does not hold the bytes that were committed", value=segment_checksum(stored).hex(),
                        allowed=segment.checksum.hex())  # fmt: skip
    return stored


class _Decoder:
    """Columns from verified bytes. What columns share is decoded once: lists of one shape have one buffer of offsets."""

    def __init__(self, directory: Directory, contents: Mapping[int, Array]) -> None:
        self._directory, self._contents = directory, contents
        self._offsets: dict[int, tuple[pa.Buffer, int]] = {}

    def column(self, column: Column) -> pa.Array:
        """One column in the layout of its type."""
        stored, kind = arrow_of(*column[:3])
        rows = self._directory.rows
        valid = None if column.valid == NONE else self._bits(column.valid, rows)
        if stored.kind is Kind.DENSE:
            return self._elements(column, stored.element, rows, valid)
        if stored.kind is Kind.VECTOR:
            items = self._elements(column, stored.element, rows * stored.size)
            return pa.Array.from_buffers(kind, rows, [None], 0, children=[items])
        offsets, count = self._offsets_of(column.lengths, rows)
        items = self._elements(column, stored.element, count)
        if stored.kind is Kind.WEIGHTED:
            weights = self._numbers(column.weights, DType.FLOAT32, count)
            items = pa.Array.from_buffers(kind.value_type, count, [None], 0, children=[items, weights])
        return pa.Array.from_buffers(kind, rows, [valid, offsets], -1 if valid else 0, children=[items])

    def _elements(self, column: Column, element: DType, count: int, valid: pa.Buffer | None = None) -> pa.Array:
        if element is not DType.STRING:
            return self._numbers(column.values, element, count, valid)
        offsets, total = self._offsets_of(column.values, count)
        segment = self._segment(column.text, total)
        text = decode_bytes(segment.encoding, self._contents[column.text])
        return pa.Array.from_buffers(pa.string(), count, [valid, offsets, text], -1 if valid else 0)

    def _numbers(self, place: int, element: DType, count: int, valid: pa.Buffer | None = None) -> pa.Array:
        if element is DType.BOOL:
            values = self._bits(place, count)
        else:
            encoding = self._segment(place, count).encoding
            values = pa.py_buffer(decode_integers(encoding, self._contents[place], _PATTERN.get(element, _WIDE)))
        return pa.Array.from_buffers(ARROW_ELEMENT[element], count, [valid, values], -1 if valid else 0)

    def _bits(self, place: int, count: int) -> pa.Buffer:
        return decode_bits(self._segment(place, count).encoding, self._contents[place])

    def _offsets_of(self, place: int, rows: int) -> tuple[pa.Buffer, int]:
        encoding = self._segment(place, rows).encoding
        if place not in self._offsets:
            offsets, total = decode_offsets(encoding, self._contents[place])
            self._offsets[place] = pa.py_buffer(offsets), total
        return self._offsets[place]

    def _segment(self, place: int, count: int) -> Segment:
        segment = self._directory.segment(place)
        if segment.encoding.values != count:
            raise DataError("a segment has another number of values than its column", value=segment.encoding.values,
                            allowed=str(count))  # fmt: skip
        return segment
