"""Limits on what an Arrow IPC file makes its reader allocate, checked before any buffer is decompressed.

A compressed buffer states its decompressed size, and a reader allocates it unchecked. So the footer and the metadata of each
record batch are read first, a few numbers of their flatbuffers (``File.fbs``, ``Message.fbs``): the rows, and the place of each
buffer, which must be inside the file and decompress to at most :data:`_LARGEST_RATIO` times its stored bytes.
"""

from __future__ import annotations

import struct
from typing import Any

from transforms.errors import DataError

_MAGIC = b"ARROW1"
_TAIL = struct.Struct("<i6s")
_BLOCK = struct.Struct("<qi4xq")
_PAIR = struct.Struct("<qq")
#: The prefix of a message's metadata: a marker and its length.
_PREFIX = struct.Struct("<Ii")
_CONTINUES = 0xFFFFFFFF
#: The kinds of messages, by their numbers.
_DICTIONARY, _BATCH = 2, 3
#: A block of ZSTD has at least 4 bytes and decompresses to at most 128 KiB.
_LARGEST_RATIO = 1 << 15
_STORED_AS_IT_IS = -1
_MOST_ROWS = 2**31 - 1


def check_arrow_file(source: Any, rows: int | None) -> None:
    """Raise :class:`DataError` if reading the open file needs memory out of proportion to its bytes.

    ``rows``: the rows that its batches must have together, if known.
    """
    size_bytes = source.size()
    try:
        footer = _footer(source, size_bytes)
        dictionaries = [_check_message(source, size_bytes, block, _DICTIONARY) for block in footer.structs(2, _BLOCK)]
        found = sum(_check_message(source, size_bytes, block, _BATCH) for block in footer.structs(3, _BLOCK))
    except (struct.error, IndexError) as error:
        raise DataError("the metadata of the Arrow file is damaged", value=str(error)) from None
    if found > _MOST_ROWS:
        raise DataError("the Arrow file has more rows than a fragment can have", value=found, allowed=str(_MOST_ROWS))
    if rows is not None and found != rows:
        raise DataError("the Arrow file must have the rows of its fragment", value=found, allowed=str(rows))
    if dictionaries and max(dictionaries) > size_bytes * _LARGEST_RATIO:
        raise DataError(
            "a dictionary of the Arrow file has more values than its bytes can hold", value=max(dictionaries)
        )


def _footer(source: Any, size_bytes: int) -> _FlatTable:
    tail = _bytes(source, size_bytes, size_bytes - _TAIL.size, _TAIL.size)
    length, magic = _TAIL.unpack(tail)
    if magic != _MAGIC:
        raise DataError("the file must be an Arrow file", value=magic)
    return _FlatTable.root(_bytes(source, size_bytes, size_bytes - _TAIL.size - length, length))


def _bytes(source: Any, size_bytes: int, start: int, length: int) -> bytes:
    if not (start >= 0 and 0 <= length <= size_bytes - start):
        raise DataError(
            "a part of the Arrow file must be inside the file", value=(start, length), allowed=str(size_bytes)
        )
    source.seek(start)
    found: bytes = source.read(length)
    return found


def _check_message(source: Any, size_bytes: int, block: tuple[int, ...], kind: int) -> int:
    """Check the buffers of a record batch or a dictionary and return its rows."""
    start, metadata_bytes, body_bytes = block
    whole = _bytes(source, size_bytes, start, metadata_bytes)
    marker, length = _PREFIX.unpack_from(whole)
    before = _PREFIX.size if marker == _CONTINUES else 4
    message = _FlatTable.root(whole[before : before + (length if marker == _CONTINUES else marker)])
    if message.byte(1) != kind or message.long(3) != body_bytes:
        raise DataError("a message of the Arrow file must match its footer", value=(message.byte(1), message.long(3)))
    body_start = start + metadata_bytes
    if not 0 <= body_bytes <= size_bytes - body_start:
        raise DataError(
            "a part of the Arrow file must be inside the file", value=(body_start, body_bytes), allowed=str(size_bytes)
        )
    header = message.table(2)
    batch = header.table(1) if kind == _DICTIONARY else header
    is_compressed = batch.has(3)
    for offset, stored_bytes in batch.structs(2, _PAIR):
        if not (offset >= 0 and 0 <= stored_bytes <= body_bytes - offset):
            raise DataError(
                "a buffer must be inside its message", value=(offset, stored_bytes), allowed=str(body_bytes)
            )
        if is_compressed and stored_bytes:
            _check_buffer(_bytes(source, size_bytes, body_start + offset, min(8, stored_bytes)), stored_bytes)
    rows = batch.long(0)
    if rows < 0:
        raise DataError("the rows of a record batch must be >= 0", value=rows)
    return rows


def _check_buffer(prefix: bytes, stored_bytes: int) -> None:
    (becomes,) = struct.unpack("<q", prefix)
    if becomes != _STORED_AS_IT_IS and not 0 <= becomes <= (stored_bytes - len(prefix)) * _LARGEST_RATIO:
        raise DataError("the decompressed size of a buffer must be in proportion to its stored bytes", value=becomes,
                        allowed=f"{(stored_bytes - len(prefix)) * _LARGEST_RATIO} bytes")  # fmt: skip


class _FlatTable:
    """A table of a flatbuffer, its fields by number. A position outside the bytes raises struct.error or IndexError."""

    def __init__(self, content: bytes, position: int) -> None:
        self._content, self._position = content, position
        (back,) = struct.unpack_from("<i", content, position)
        self._fields = self._within(position - back)
        (self._fields_bytes,) = struct.unpack_from("<H", content, self._fields)

    @classmethod
    def root(cls, content: bytes) -> _FlatTable:
        """The root table of a buffer."""
        return cls(content, struct.unpack_from("<I", content)[0])

    def _within(self, position: int) -> int:
        if not 0 <= position < len(self._content):
            raise IndexError(f"position {position} of {len(self._content)} bytes")
        return position

    def _place(self, field: int) -> int:
        """The position of a field; 0 for a field with its default."""
        at = 4 + 2 * field
        if at + 2 > self._fields_bytes:
            return 0
        (offset,) = struct.unpack_from("<H", self._content, self._fields + at)
        return self._position + int(offset) if offset else 0

    def has(self, field: int) -> bool:
        """Whether a field is set."""
        return self._place(field) != 0

    def byte(self, field: int) -> int:
        """An unsigned byte."""
        place = self._place(field)
        return self._content[self._within(place)] if place else 0

    def long(self, field: int) -> int:
        """A signed 64-bit number."""
        place = self._place(field)
        return int(struct.unpack_from("<q", self._content, self._within(place))[0]) if place else 0

    def table(self, field: int) -> _FlatTable:
        """A nested table."""
        place = self._reference(field)
        if not place:
            raise IndexError(f"no field {field}")
        return _FlatTable(self._content, place)

    def structs(self, field: int, shape: struct.Struct) -> list[tuple[int, ...]]:
        """A vector of structures."""
        place = self._reference(field)
        if not place:
            return []
        (count,) = struct.unpack_from("<I", self._content, place)
        if place + 4 + count * shape.size > len(self._content):
            raise IndexError(f"{count} structures beyond {len(self._content)} bytes")
        return [shape.unpack_from(self._content, place + 4 + one * shape.size) for one in range(count)]

    def _reference(self, field: int) -> int:
        place = self._place(field)
        if not place:
            return 0
        (offset,) = struct.unpack_from("<I", self._content, self._within(place))
        return self._within(place + int(offset))
