"""The directory of a memo file: which columns it holds, where their segments lie, how these are encoded, and their checksums.

It stands at the head of the file and is a function of the columns alone. Its own digest is the file's: who knows that one
digest can verify any column without reading another.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from transforms.errors import DataError
from warehouse.memo_format.encoding import Encoding

#: What a file begins with; the length of the directory follows as a 64-bit number.
MAGIC = b"headrace.memo/3\n"
HEAD = struct.Struct("<16sQ")
#: Every segment begins at a multiple of this.
ALIGNMENT_BYTES = 8
_COUNTS = struct.Struct("<IIQ")
_SEGMENT = struct.Struct("<QQ16sQqIBBBx")
_COLUMN = struct.Struct("<BBxxIIiiiii")
NONE = -1


class Segment(NamedTuple):
    """Bytes of a file that stand for values: ``position`` from the file's first byte, XXH3 with 128 bits over the stored bytes."""

    position: int
    stored_bytes: int
    checksum: bytes
    encoding: Encoding


class Column(NamedTuple):
    """One column: the numbers of its kind and element type, the items of a row of a vector (else 0), and its segments.

    ``valid``: which rows are not null; ``lengths``: of each row's list; ``values``: the elements, of text their lengths in
    bytes; ``text``: the text itself; ``weights``. Each is a place in the list of segments, or :data:`NONE`.
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
    def segments(self) -> tuple[int, ...]:
        """The places of its segments, as often as it refers to them."""
        return tuple(place for place in self[3:] if place != NONE)


@dataclass(frozen=True, slots=True)
class Directory:
    """What a file holds: ``columns`` by name, in the order of the file; columns may share segments."""

    rows: int
    segments: Sequence[Segment]
    columns: dict[str, Column]

    def to_bytes(self) -> bytes:
        """As stored. Names are at most 2 ** 32 - 1 bytes of UTF-8."""
        names = [name.encode("utf-8") for name in self.columns]
        parts = [_COUNTS.pack(len(self.segments), len(names), self.rows)]
        parts += [_record(segment) for segment in self.segments]
        for name, column in zip(names, self.columns.values(), strict=True):
            parts.append(_COLUMN.pack(*column[:3], len(name), *column[3:]))
        return b"".join([*parts, *names])

    @classmethod
    def from_bytes(cls, content: bytes) -> Directory:
        """The inverse of :meth:`to_bytes`. Raises :class:`DataError` for what it never wrote."""
        try:
            segments, columns, rows = _COUNTS.unpack_from(content)
            names = _COUNTS.size + segments * _SEGMENT.size + columns * _COLUMN.size
            middle = _COUNTS.size + segments * _SEGMENT.size
            read = dict(_columns(content[middle:names], content[names:]))
            return cls(rows, [*_segments(content[_COUNTS.size : middle])], read)
        except (struct.error, UnicodeDecodeError) as error:
            raise DataError("a directory is cut off or overwritten", value=str(error)) from error

    def checksum_of(self, name: str) -> str:
        """What vouches for one column, its type, encoding and stored bytes, wherever these lie; 32 hexadecimal digits."""
        column = self.columns[name]
        parts = [_COUNTS.pack(0, 0, self.rows), _COLUMN.pack(*column[:3], 0, *(place != NONE for place in column[3:]))]
        parts += [_record(self.segment(place)._replace(position=0)) for place in column.segments]
        return str(xxhash.xxh3_128_hexdigest(b"".join(parts)))

    @property
    def end(self) -> int:
        """Where the last segment ends, and with it the file."""
        return max((segment.position + segment.stored_bytes for segment in self.segments), default=0)

    def segment(self, place: int) -> Segment:
        """The segment at a place. Raises :class:`DataError` when there is none."""
        if not 0 <= place < len(self.segments):
            raise DataError("a column names a segment that is not there", value=place)
        return self.segments[place]

    def ranges(self, names: Iterable[str], gap_bytes: int) -> Iterator[tuple[int, int, list[int]]]:
        """The stretches (first byte, end, segments) to read for these columns, ascending; those that are at most ``gap_bytes``
        apart are one.
        """
        places = {place for name in names for place in self.columns[name].segments}
        start = end = 0
        held: list[int] = []
        for place in sorted(places, key=lambda place: self.segment(place).position):
            segment = self.segments[place]
            if held and segment.position - end > gap_bytes:
                yield start, end, held
                held = []
            if not held:
                start = end = segment.position
            held.append(place)
            end = max(end, segment.position + segment.stored_bytes)
        if held:
            yield start, end, held


def directory_digest(content: bytes) -> str:
    """The digest of a stored directory, which is its file's: SHA-256, 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def segment_checksum(stored: object) -> bytes:
    """XXH3 with 128 bits over bytes."""
    return bytes(xxhash.xxh3_128_digest(stored))  # type: ignore[arg-type]


def aligned(position: int) -> int:
    """The first multiple of :data:`ALIGNMENT_BYTES` from ``position`` on."""
    return -(-position // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _record(segment: Segment) -> bytes:
    position, stored_bytes, checksum, (codec, count, base, width, code_width, terms) = segment
    return _SEGMENT.pack(position, stored_bytes, checksum, count, base, terms, codec, width, code_width)


def _segments(content: bytes) -> Iterator[Segment]:
    for position, stored_bytes, checksum, count, base, terms, codec, width, code_width in _SEGMENT.iter_unpack(content):
        yield Segment(position, stored_bytes, checksum, Encoding(codec, count, base, width, code_width, terms))


def _columns(content: bytes, names: bytes) -> Iterator[tuple[str, Column]]:
    end = 0
    for kind, element, size, name_bytes, *segments in _COLUMN.iter_unpack(content):
        start, end = end, end + name_bytes
        if end > len(names):
            raise DataError("a directory is cut off or overwritten", value=f"a name ends at byte {end} of {len(names)}")
        yield names[start:end].decode("utf-8"), Column(kind, element, size, *segments)
