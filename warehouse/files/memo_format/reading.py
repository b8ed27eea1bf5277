"""Reading a memo file into Arrow columns; every stored byte is verified before it is decoded."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.errors import DataError
from transforms.kernels.text_validity import check_array
from transforms.types import DType
from warehouse.files.memo_format import decoding
from warehouse.files.memo_format.column_kinds import ELEMENTS, Kind, arrow_of
from warehouse.files.memo_format.decoding import INT32, INT64, OFFSETS
from warehouse.files.memo_format.directory import (
    ALIGNMENT_BYTES,
    HEAD,
    MAGIC,
    NONE,
    ColumnRecord,
    Directory,
    segment_checksum,
)
from warehouse.files.memo_format.encoding import Encoding, decode_bits, decode_bytes, mismatch, most_constants

#: The first bytes to read: head and directory of most files.
_FIRST_BYTES = 64 << 10
#: Stored bytes that are read and decoded together: they stay in a processor's cache from reading to decoding.
LOCAL_BATCH_BYTES = 1 << 20
#: 64-bit words that are decoded into one arena: a larger one is returned to the system when it is freed, and faults again.
_ARENA_WORDS = 2 << 20
#: Roles of segments that are not integers: bits, and bytes of text.
_BITS, _BYTES = 3, 4
_ROLES = 5

from_buffers = pa.Array.from_buffers


class _Kept(threading.local):
    """Memory that a thread keeps for its next file: the stored bytes and the table of terms."""

    def __init__(self) -> None:
        self.words = np.empty(0, np.uint64)
        self.table = np.empty(0, np.int64)

    def words_for(self, size_bytes: int) -> Array:
        """Words for stored bytes; those of a large read are not kept."""
        count = -(-size_bytes // 8)
        if count > len(self.words):
            words = np.empty(max(count, LOCAL_BATCH_BYTES // 8), np.uint64)
            if len(words) > 2 * LOCAL_BATCH_BYTES // 8:
                return words
            self.words = words
        return self.words

    def table_of_terms(self) -> Array:
        """The table for :func:`decoding.decode`."""
        if not len(self.table):
            self.table = np.empty(decoding.TABLE_LENGTH, np.int64)
        return self.table


_KEPT = _Kept()


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


def read_range(source: Source, start: int, end: int, into: Array | None = None) -> Array:
    """The bytes ``[start, end)`` of the file, 8-byte aligned, in ``into`` if given. Raises :class:`DataError` if fewer are read."""
    length = end - start
    whole = (np.empty(-(-length // 8), np.uint64) if into is None else into).view(np.uint8)[:length]
    if length:
        source.seek(start)
        got = source.readinto(whole.data)
        if got != length:
            raise DataError("the memo file is truncated", value=f"{got} bytes from {start}", allowed=f"{length}")
    return whole


def read_memo_columns(
    source: Source,
    directory: Directory,
    names: Iterable[str],
    gap_bytes: int,
    rows: int | None = None,
    *,
    batch_bytes: int = LOCAL_BATCH_BYTES,
) -> dict[str, pa.Array]:
    """Read and verify columns; gaps of more than ``gap_bytes`` between them are skipped.

    ``rows``: the rows that they must have, if known. ``batch_bytes``: the stored bytes that are read and decoded
    together; a longer read is cut between segments. Raises :class:`DataError` for an invalid directory and for bytes that do not
    match it. Memory is in proportion to the rows and the stored bytes.
    """
    if rows is not None and directory.rows != rows:
        raise DataError("a memo file must have the rows of its fragment", value=directory.rows, allowed=str(rows))
    size_bytes = source.size()
    if size_bytes != directory.file_bytes:
        raise DataError("the memo file is truncated", value=f"{size_bytes} bytes", allowed=str(directory.file_bytes))
    chosen = {name: directory.columns[name] for name in names}
    segments = _Segments(directory, _uses(list(chosen.values())), size_bytes)
    _check_counts(directory, chosen.values())
    for some in segments.batches(gap_bytes, batch_bytes):
        segments.load(source, some)
    decoder = _Decoder(directory.rows, segments)
    return {name: decoder.column(column) for name, column in chosen.items()}


_LISTS = (Kind.RAGGED, Kind.WEIGHTED)


def _check_counts(directory: Directory, columns: Iterable[ColumnRecord]) -> None:
    """Raise :class:`DataError` for segments that a column's type does not have, or with other numbers of values than it.

    That of a list's elements is the sum of its lengths, which is not known here.
    """
    counts = directory.records["values"].tolist()
    for column in columns:
        _check_column(directory.rows, counts, column)


def _check_column(rows: int, counts: Sequence[int], column: ColumnRecord) -> None:
    stored, *_ = arrow_of(column.kind, column.element, column.size)
    is_list, is_weighted = stored.kind in _LISTS, stored.kind is Kind.WEIGHTED
    found = column.lengths != NONE, column.values != NONE, column.text != NONE, column.weights != NONE
    if found != (is_list, True, stored.element is DType.STRING, is_weighted) or (stored.size and column.valid != NONE):
        raise DataError("a column must have the segments of its type", value=column)
    items = counts[column.weights] if is_weighted else rows * (stored.size or 1)
    known = [(column.valid, rows), (column.lengths, rows)]
    if is_weighted or not is_list:
        known.append((column.values, items))
    for place, count in known:
        if place != NONE and counts[place] != count:
            raise _other_count(counts[place], count)


def _other_count(found: int | None, allowed: int) -> DataError:
    return DataError("a segment must have as many values as its column", value=found, allowed=str(allowed))


def _uses(columns: list[ColumnRecord]) -> tuple[Array, Array]:
    """The distinct segments of some columns with their roles."""
    fields = np.array(columns, np.int64).reshape(-1, len(ColumnRecord._fields))
    places = fields[:, 3:]
    roles = np.tile(np.array([_BITS, OFFSETS, INT64, _BYTES, INT32]), (len(fields), 1))
    roles[:, 2] = _VALUE_ROLES[np.minimum(fields[:, 1], len(_VALUE_ROLES) - 1)]
    distinct = np.unique(places[places != NONE] * _ROLES + roles[places != NONE])
    return distinct // _ROLES, distinct % _ROLES


#: The role of a column's values, by the number of its elements' type; that of an undefined number does not matter.
_VALUE_ROLES = np.array(
    [{DType.BOOL: _BITS, DType.STRING: OFFSETS, DType.FLOAT32: INT32}.get(element, INT64) for element in ELEMENTS]
)


class _Decoded(NamedTuple):
    """A decoded segment: its number of values, its buffer, and of offsets the last one."""

    values: int
    buffer: pa.Buffer
    total: int = 0


class _Segments:
    """The needed segments of a file in the order of their positions, and what is decoded of them, by index and role."""

    def __init__(self, directory: Directory, uses: tuple[Array, Array], size_bytes: int) -> None:
        """Raises :class:`DataError` for segments that are not in the file or overlap, and for other bytes than their encoding's."""
        self.decoded: dict[tuple[int, int], _Decoded] = {}
        self._constants = most_constants(directory.rows)
        places, roles = uses
        if len(places) and not 0 <= places[0] <= places[-1] < len(directory.segments):
            raise DataError("the segment of a column must be in the directory", value=int(places[-1]))
        found = directory.records[places]
        order = np.lexsort((places, found["stored_bytes"], found["position"]))
        self._records, places, roles = found[order], places[order], roles[order]
        self._uses = list(zip(places.tolist(), roles.tolist(), strict=True))
        self._starts, self._ends = self._inside(places, size_bytes)
        self._jobs = self._measured(roles)

    def _inside(self, places: Array, size_bytes: int) -> tuple[list[int], list[int]]:
        """The first byte and the end of each segment."""
        positions, stored = self._records["position"], self._records["stored_bytes"]
        if not len(places):
            return [], []
        furthest = max(int(positions.max()), int(stored.max()))
        if furthest > size_bytes or int((positions + stored).max()) > size_bytes:
            raise DataError("a segment must be inside its file", value=furthest, allowed=str(size_bytes))
        if (positions % ALIGNMENT_BYTES).any():
            raise DataError("a segment must begin at a multiple of 8", value=positions.tolist())
        ends = positions + stored
        if ((ends[:-1] > positions[1:]) & (places[:-1] != places[1:])).any():
            raise DataError("the segments of a file must not overlap", value=positions.tolist())
        return positions.tolist(), ends.tolist()

    def _measured(self, roles: Array) -> Array:
        """The jobs of :mod:`decoding`; a role that is not an integer's is measured as nothing."""
        jobs = np.zeros((len(roles), decoding.JOB_FIELDS), np.int64)
        records = self._records
        integers = roles <= OFFSETS
        for field, name in _JOB_OF_RECORD:
            jobs[:, field] = np.where(integers, records[name].astype(np.int64), 0)
        jobs[:, decoding.ROLE] = roles
        wrong = decoding.measure(jobs, self._constants)
        if wrong >= 0:
            raise mismatch(self._encoding(wrong))
        return jobs

    def batches(self, gap_bytes: int, batch_bytes: int) -> Iterator[list[tuple[int, int]]]:
        """Ranges of segments: each is one read, the ranges of a list are decoded together."""
        batch: list[tuple[int, int]] = []
        size_bytes = 0
        for first, end in self._ranges(gap_bytes, batch_bytes):
            length = self._ends[end - 1] - self._starts[first]
            if batch and size_bytes + length > batch_bytes:
                yield batch
                batch, size_bytes = [], 0
            batch.append((first, end))
            size_bytes += length
        if batch:
            yield batch

    def _ranges(self, gap_bytes: int, most_bytes: int) -> Iterator[tuple[int, int]]:
        first = 0
        starts, ends = self._starts, self._ends
        for i in range(1, len(starts) + 1):
            if i == len(starts) or starts[i] - ends[i - 1] > gap_bytes or ends[i] - starts[first] > most_bytes:
                yield first, i
                first = i

    def load(self, source: Source, ranges: list[tuple[int, int]]) -> None:
        """Read, verify and decode ranges of segments. Raises :class:`DataError`."""
        places = []
        size_bytes = 0
        for first, end in ranges:
            places.append(size_bytes)
            size_bytes += -(-(self._ends[end - 1] - self._starts[first]) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        words = _KEPT.words_for(size_bytes)
        for place, (first, end) in zip(places, ranges, strict=True):
            start = self._starts[first]
            stored = read_range(source, start, self._ends[end - 1], words[place // ALIGNMENT_BYTES :])
            self._verify(stored, start, first, end)
            self._jobs[first:end, decoding.FIRST] += place - start
        first, end = ranges[0][0], ranges[-1][1]
        self._jobs[first:end, decoding.FIRST] //= ALIGNMENT_BYTES
        for some in self._arenas(first, end):
            self._decode(words, *some)

    def _verify(self, stored: Array, start: int, first: int, end: int) -> None:
        """Compare the checksums of a range of segments, and decode those that are no integers."""
        checksums = self._records["checksum"][first:end].tolist()
        for i, checksum in enumerate(checksums, first):
            content = stored[self._starts[i] - start : self._ends[i] - start]
            found = segment_checksum(content)
            if found != checksum:
                raise DataError(
                    "the memo does not have the bytes that were committed", value=found.hex(), allowed=checksum.hex()
                )
            role = self._uses[i][1]
            if role > OFFSETS:
                encoding = self._encoding(i)
                decoded = decode_bits(encoding, content) if role == _BITS else decode_bytes(encoding, content)
                self.decoded[self._uses[i]] = _Decoded(encoding.values, decoded)

    def _arenas(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Ranges of segments that are decoded into one arena, with its size in words."""
        size = 0
        for i, words in enumerate(self._jobs[first:end, decoding.SIZE].tolist(), first):
            if size and size + words > _ARENA_WORDS:
                yield first, i, size
                first, size = i, 0
            size += words
        yield first, end, size

    def _decode(self, words: Array, first: int, end: int, size: int) -> None:
        jobs = self._jobs[first:end]
        jobs = jobs[jobs[:, decoding.ROLE] <= OFFSETS]
        if not len(jobs):
            return
        places = np.cumsum(jobs[:, decoding.SIZE])
        jobs[:, decoding.PLACE] = places - jobs[:, decoding.SIZE]
        arena = np.empty(size, np.int64)
        narrow = arena.view(np.int32)
        wrong = decoding.decode(words, jobs, _KEPT.table_of_terms(), arena, narrow)
        uses = [use for use in self._uses[first:end] if use[1] <= OFFSETS]
        if wrong >= 0:
            raise DataError("the lengths of a segment must add up to an offset", value=uses[wrong])
        whole = pa.py_buffer(arena)
        for use, count, place in zip(
            uses, jobs[:, decoding.VALUES].tolist(), jobs[:, decoding.PLACE].tolist(), strict=True
        ):
            if use[1] == OFFSETS:
                total = int(narrow[2 * place + count])
                self.decoded[use] = _Decoded(count, whole.slice(8 * place, 4 * (count + 1)), total)
            else:
                self.decoded[use] = _Decoded(count, whole.slice(8 * place, count * (8 if use[1] == INT64 else 4)))

    def _encoding(self, i: int) -> Encoding:
        record = self._records[i]
        names = ("codec", "values", "base", "width", "code_width", "terms")
        return Encoding(*(int(record[name]) for name in names))


_JOB_OF_RECORD = (
    (decoding.FIRST, "position"), (decoding.STORED_BYTES, "stored_bytes"), (decoding.VALUES, "values"),
    (decoding.BASE, "base"), (decoding.TERMS, "terms"), (decoding.CODEC, "codec"), (decoding.WIDTH, "width"),
    (decoding.CODE_WIDTH, "code_width"),
)  # fmt: skip


class _Decoder:
    """Arrow columns from decoded segments; lists of one shape share their offsets."""

    def __init__(self, rows: int, segments: _Segments) -> None:
        self._rows = rows
        self._decoded = segments.decoded

    def column(self, column: ColumnRecord) -> pa.Array:
        """One column in the layout of its type."""
        kind, element, size, valid, lengths, *_ = column
        stored, arrow, item = arrow_of(kind, element, size)
        rows = self._rows
        present = None if valid == NONE else self._of(valid, _BITS, rows).buffer
        if stored.kind is Kind.DENSE:
            return self._elements(column, stored.element, arrow, rows, present)
        if stored.kind is Kind.VECTOR:
            items = self._elements(column, stored.element, item, rows * stored.size)
            return from_buffers(arrow, rows, [None], 0, 0, [items])
        offsets = self._of(lengths, OFFSETS, rows)
        items = self._elements(column, stored.element, item, offsets.total)
        if stored.kind is Kind.WEIGHTED:
            weights = from_buffers(
                pa.float32(), offsets.total, [None, self._of(column.weights, INT32, offsets.total).buffer], 0
            )
            items = from_buffers(arrow.value_type, offsets.total, [None], 0, 0, [items, weights])
        return from_buffers(arrow, rows, [present, offsets.buffer], -1 if present else 0, 0, [items])

    def _elements(
        self, column: ColumnRecord, element: DType, arrow: pa.DataType, count: int, present: pa.Buffer | None = None
    ) -> pa.Array:
        values = self._of(column.values, int(_VALUE_ROLES[column.element]), count)
        nulls = -1 if present else 0
        if element is not DType.STRING:
            return from_buffers(arrow, count, [present, values.buffer], nulls)
        text = self._of(column.text, _BYTES, values.total)
        array = from_buffers(arrow, count, [present, values.buffer, text.buffer], nulls)
        check_array(array)
        return array

    def _of(self, place: int, role: int, count: int) -> _Decoded:
        """A decoded segment. Raises :class:`DataError` unless it has ``count`` values."""
        found = self._decoded.get((place, role))
        if found is None or found.values != count:
            raise _other_count(found and found.values, count)
        return found
