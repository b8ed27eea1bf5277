"""The directory of a memo file: its columns, their segments, encodings and checksums.

It is at the head of the file and depends on the columns alone. Its digest is the file's checksum, by which any column can be
verified without reading another.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
import xxhash

from transforms.errors import DataError
from warehouse.files.memo_format.encoding import Encoding

#: The first bytes of a file; the length of the directory follows as a 64-bit number.
MAGIC = b"headrace.memo/3\n"
HEAD = struct.Struct("<16sQ")
#: Every segment begins at a multiple of this.
ALIGNMENT_BYTES = 8
_COUNTS = struct.Struct("<IIQQ")
_SEGMENT = struct.Struct("<QQ16sQqIBBBx")
#: The same, for all segments at once.
RECORD = np.dtype([("position", "<u8"), ("stored_bytes", "<u8"), ("checksum", "V16"), ("values", "<u8"), ("base", "<i8"),
                   ("terms", "<u4"), ("codec", "u1"), ("width", "u1"), ("code_width", "u1"), ("zero", "u1")])  # fmt: skip
_COLUMN = struct.Struct("<BBxxIiiiii")
#: Ends each name.
_END_OF_NAME = "\0"
NONE = -1
#: Offsets have 32 bits.
_MOST_ROWS = 2**31 - 2


class Segment(NamedTuple):
    """Encoded values in a file: ``position`` from the file's first byte; ``checksum`` is 128-bit XXH3 of the stored bytes."""

    position: int
    stored_bytes: int
    checksum: bytes
    encoding: Encoding


class ColumnRecord(NamedTuple):
    """One column: its type, and its segments as indexes in the list of segments, or :data:`NONE`.

    Attributes:
        kind: the number of its kind.
        element: the number of its element type.
        size: the items of a row of a vector, else 0.
        valid: the rows that are not null.
        lengths: the lengths of the rows' lists.
        values: the elements; of text, their lengths in bytes.
        text: the bytes of text.
        weights: the weights of the items.
    """

    kind: int
    element: int
    size: int
    valid: int = NONE
    lengths: int = NONE
    values: int = NONE
    text: int = NONE
    weights: int = NONE

    @property
    def segments(self) -> list[int]:
        """The indexes of its segments, repeated ones too."""
        return [place for place in self[3:] if place != NONE]


@dataclass(frozen=True, slots=True)
class Directory:
    """The directory of a file: ``columns`` by name, in the order of the file; columns may share segments."""

    rows: int
    file_bytes: int
    segments: Sequence[Segment]
    columns: dict[str, ColumnRecord]

    def to_bytes(self) -> bytes:
        """The stored directory. Raises :class:`DataError` for a name with a zero character."""
        parts = [_COUNTS.pack(len(self.segments), len(self.columns), self.rows, self.file_bytes)]
        parts += [_record(segment) for segment in self.segments]
        parts += [_COLUMN.pack(*column) for column in self.columns.values()]
        if any(_END_OF_NAME in name for name in self.columns):
            raise DataError("a column's name must hold no zero character", value=list(self.columns))
        return b"".join([*parts, *((name + _END_OF_NAME).encode("utf-8") for name in self.columns)])

    @classmethod
    def from_bytes(cls, content: bytes) -> Directory:
        """The inverse of :meth:`to_bytes`; segments are decoded on access.

        Raises :class:`DataError` for bytes that :meth:`to_bytes` cannot write.
        """
        try:
            segments, count, rows, file_bytes = _COUNTS.unpack_from(content)
            middle = _COUNTS.size + segments * _SEGMENT.size
            end = middle + count * _COLUMN.size
            columns = map(ColumnRecord._make, _COLUMN.iter_unpack(content[middle:end]))
            names = content[end:].decode("utf-8").split(_END_OF_NAME)
            named = dict(zip(names[:-1], columns, strict=True))
            if len(named) != count or len(content) < end:
                raise ValueError(f"{len(named)} columns instead of {count}")
            if rows > _MOST_ROWS:
                raise ValueError(f"{rows} rows")
        except (struct.error, ValueError) as error:
            raise DataError("the directory is truncated or overwritten", value=str(error)) from error
        return cls(rows, file_bytes, _StoredSegments(content[_COUNTS.size : middle]), named)

    def checksum_of(self, name: str) -> str:
        """The checksum of a column's type, encodings and stored bytes, but not positions; 32 hexadecimal digits."""
        column = self.columns[name]
        parts = [_COUNTS.pack(0, 0, self.rows, 0), _COLUMN.pack(*column[:3], *(place != NONE for place in column[3:]))]
        parts += [_record(self.segment(place), 0) for place in column.segments]
        return str(xxhash.xxh3_128_hexdigest(b"".join(parts)))

    def segment(self, place: int) -> Segment:
        """The segment at an index. Raises :class:`DataError` for an index out of range."""
        if not 0 <= place < len(self.segments):
            raise DataError("the segment of a column must be in the directory", value=place)
        return self.segments[place]

    @property
    def records(self) -> np.ndarray[Any, np.dtype[Any]]:
        """All segments as an array of :data:`RECORD`."""
        held = self.segments
        content = held.content if isinstance(held, _StoredSegments) else b"".join(map(_record, held))
        return np.frombuffer(content, RECORD)


class _StoredSegments(Sequence[Segment]):
    """Stored segments, decoded on access."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __len__(self) -> int:
        return len(self.content) // _SEGMENT.size

    @overload
    def __getitem__(self, place: int) -> Segment: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Segment]: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        position, stored_bytes, checksum, values, base, terms, codec, width, code_width = _SEGMENT.unpack_from(
            self.content, place * _SEGMENT.size
        )
        return Segment(position, stored_bytes, checksum, Encoding(codec, values, base, width, code_width, terms))


def directory_digest(content: bytes) -> str:
    """The digest of a stored directory, the checksum of its file: SHA-256, 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def segment_checksum(stored: Any) -> bytes:
    """128-bit XXH3."""
    return bytes(xxhash.xxh3_128_digest(stored))


def aligned(position: int) -> int:
    """The next multiple of :data:`ALIGNMENT_BYTES` at or after ``position``."""
    return -(-position // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def directory_bytes(segments: int, names: Iterable[str]) -> int:
    """The length of a stored directory, which does not depend on what the segments hold."""
    columns = [len(name.encode("utf-8")) + len(_END_OF_NAME) + _COLUMN.size for name in names]
    return _COUNTS.size + segments * _SEGMENT.size + sum(columns)


def _record(segment: Segment, position: int | None = None) -> bytes:
    """The stored segment; ``position`` replaces its own."""
    own, stored_bytes, checksum, (codec, values, base, width, code_width, terms) = segment
    position = own if position is None else position
    return _SEGMENT.pack(position, stored_bytes, checksum, values, base, terms, codec, width, code_width)
