"""Files of rows in the order of a hash of their key, from which the rows of some keys are read alone.

Rows are records of one size, 64 to a block; the bytes of text columns follow in a heap, block by block and there column by column. The head has
of each block the first hash, a CRC-32 over its records and its heap, and where its heap begins, and is itself under a SHA-256. So a reader
checks the head and the blocks that it reads, and nothing else. Every part is checked before values are made of it: a damaged file is an
error, and its rows are read from where they came.

The same rows always give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.columns.arrays import one_array
from transforms.errors import DataError

FORMAT = "headrace.rows-by-key/1"
#: The column with the number of a row in its fragment.
ROW = "@row"
#: Rows of a block: the fewest that are read for a key.
BLOCK_ROWS = 64
_MAGIC = b"headrace rows 1\n"
_PREFIX = struct.Struct(f"<{len(_MAGIC)}sQ32s")
_MOST_HEAD_BYTES = 1 << 30
_NO_TEXT = 0xFFFFFFFF
_HASH, _NUMBER = "hash", "row"
_TIMES = tuple(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns"))
_TYPES: Mapping[str, pa.DataType] = {str(kind): kind for kind in (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(),
    pa.float64(), pa.date32(), pa.date64(), *_TIMES, pa.string(), pa.large_string(), pa.binary(), pa.large_binary(),
)}  # fmt: skip
_TEXTS = frozenset(map(str, (pa.string(), pa.large_string())))
_HEAPED = _TEXTS | {str(pa.binary()), str(pa.large_binary())}


class DamagedRows(DataError):
    """A file of rows by key does not have the bytes that were written. Its rows are read from their table."""


def is_stored(kind: pa.DataType) -> bool:
    """Whether a column of this type can be in such a file."""
    return str(kind) in _TYPES


def are_hashes_of(hashes: Array, wanted: Array) -> Array:
    """Whether each hash is among ``wanted``, which are ascending."""
    if not len(wanted):
        return np.zeros(len(hashes), bool)
    found: Array = wanted[np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)] == hashes
    return found


def rows_by_key_writer(hashes: Array, rows: pa.Table, name: str) -> Callable[[IO[bytes]], None]:
    """Writes a file of all rows, of which at most 2**32 - 1 may be.

    Args:
        hashes: of the key of each row, uint32.
        rows: columns whose types :func:`is_stored`; row i has number i.
        name: what the file is, which its reader must state.
    """
    order = _sorting(hashes)
    columns = [_Column(at, field.name, str(field.type), rows.column(field.name).null_count > 0) for at, field in enumerate(rows.schema)]  # fmt: skip
    heaped = {
        one.name: _heaped(one_array(rows.column(one.name)).take(pa.array(order))) for one in columns if one.is_text
    }
    records = np.zeros(len(order), _record_type(columns))
    records[_HASH], records[_NUMBER] = hashes[order], order
    for one in columns:
        array = one_array(rows.column(one.name))
        if one.is_text:
            lengths = np.diff(heaped[one.name][0]).astype(np.uint32)
            lengths[np.asarray(array.is_null())[order]] = _NO_TEXT
            records[one.value] = lengths
        else:
            records[one.value] = _fixed(array)[order]
        if one.is_nullable and not one.is_text:
            records[one.validity] = np.asarray(array.is_valid(), np.uint8)[order]
    ends = np.append(np.arange(0, len(order), BLOCK_ROWS), len(order))
    stored = records.view(np.uint8).reshape(len(order), records.itemsize)
    heaps = _heaps([(offsets[ends].tolist(), data) for offsets, data in heaped.values()], len(ends) - 1)
    checks = [zlib.crc32(heaps[at], zlib.crc32(stored[begin:stop].data)) for at, (begin, stop) in enumerate(pairwise(ends.tolist()))]  # fmt: skip
    document = {"format": FORMAT, "name": name, "rows": len(order), "columns": [[one.name, one.type, one.is_nullable] for one in columns]}  # fmt: skip
    text = json.dumps(document, separators=(",", ":")).encode()
    numbers = (
        records[_HASH][ends[:-1]],
        np.array(checks, np.uint32),
        np.cumsum([0, *map(len, heaps)]).astype(np.uint64),
    )
    head = b"".join((struct.pack("<Q", len(text)), text, *(one.tobytes() for one in numbers)))

    def write(file: IO[bytes]) -> None:
        file.write(_PREFIX.pack(_MAGIC, len(head), hashlib.sha256(head).digest()))
        file.write(head)
        file.write(stored.data)
        file.writelines(heaps)

    return write


@contextmanager
def open_rows_by_key(path: str | os.PathLike[str], name: str) -> Iterator[RowsByKey]:
    """The file that was written as ``name``. Raises :class:`DamagedRows` for another one, and ``OSError``."""
    with Path(path).open("rb", buffering=0) as file:
        yield _opened(file.fileno(), os.fspath(path), name)


def _opened(descriptor: int, path: str, name: str) -> RowsByKey:
    size = os.fstat(descriptor).st_size
    prefix = os.pread(descriptor, _PREFIX.size, 0)
    if len(prefix) != _PREFIX.size:
        raise _damaged(path, "a file that ends in its head")
    magic, length, digest = _PREFIX.unpack(prefix)
    if magic != _MAGIC or length > min(size, _MOST_HEAD_BYTES):
        raise _damaged(path, "another file")
    head = os.pread(descriptor, length, _PREFIX.size)
    if hashlib.sha256(head).digest() != digest:
        raise _damaged(path, "a damaged head")
    try:
        found = RowsByKey(descriptor, path, _Head.read(head, _PREFIX.size + length))
    except (ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
        raise _damaged(path, f"a head that does not fit: {error}") from None
    if found.head.name != name:
        raise _damaged(path, f"rows of {found.head.name}")
    if found.head.size_bytes != size:
        raise _damaged(path, f"{size} bytes in place of {found.head.size_bytes}")
    return found


@dataclass(frozen=True)
class _Column:
    number: int
    name: str
    type: str
    is_nullable: bool

    @property
    def is_text(self) -> bool:
        return self.type in _HEAPED

    @property
    def value(self) -> str:
        """The field of a record with the value, or with the bytes of a text."""
        return f"value {self.number}"

    @property
    def validity(self) -> str:
        """The field of a record that is 1 for a value and 0 for a null."""
        return f"valid {self.number}"


def _number_type(kind: str) -> str:
    """How a number, a time or a truth value is in a record."""
    found = _TYPES[kind]
    if pa.types.is_boolean(found):
        return "|u1"
    letter = "f" if pa.types.is_floating(found) else "u" if pa.types.is_unsigned_integer(found) else "i"
    return f"<{letter}{found.bit_width // 8}"


def _record_type(columns: Sequence[_Column]) -> np.dtype[Any]:
    fields = [(_HASH, "<u4"), (_NUMBER, "<u4")]
    for one in columns:
        fields.append((one.value, "<u4" if one.is_text else _number_type(one.type)))
        if one.is_nullable and not one.is_text:
            fields.append((one.validity, "|u1"))
    return np.dtype(fields)


@dataclass(frozen=True)
class _Head:
    name: str
    rows: int
    columns: tuple[_Column, ...]
    firsts: Array
    checks: Array
    starts: Array
    records_at: int

    @classmethod
    def read(cls, content: bytes, records_at: int) -> _Head:
        """Raises ``ValueError``, ``KeyError``, ``TypeError`` or ``struct.error`` for any other content."""
        (length,) = struct.unpack_from("<Q", content)
        document = json.loads(content[8 : 8 + length])
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}")
        rows = document["rows"]
        if type(rows) is not int or not 0 <= rows < 2**32:
            raise ValueError(f"{rows!r} rows")
        columns = tuple(_Column(at, str(name), str(kind), bool(nullable)) for at, (name, kind, nullable) in enumerate(document["columns"]))  # fmt: skip
        if any(one.type not in _TYPES for one in columns):
            raise ValueError("a column of another type")
        if len({one.name for one in columns}) != len(columns):
            raise ValueError("two columns of one name")
        blocks, at = -(-rows // BLOCK_ROWS), 8 + length
        if len(content) != at + 16 * blocks + 8:
            raise ValueError("another number of blocks")
        firsts = np.frombuffer(content, np.uint32, blocks, at)
        checks = np.frombuffer(content, np.uint32, blocks, at + 4 * blocks)
        starts = np.frombuffer(content, np.uint64, blocks + 1, at + 8 * blocks).astype(np.int64)
        if starts[0] != 0 or (np.diff(starts) < 0).any() or (np.diff(firsts.astype(np.int64)) < 0).any():
            raise ValueError("blocks out of order")
        return cls(str(document["name"]), rows, columns, firsts, checks, starts, records_at)

    @cached_property
    def record_type(self) -> np.dtype[Any]:
        return _record_type(self.columns)

    @property
    def heap_at(self) -> int:
        return self.records_at + self.rows * self.record_type.itemsize

    @property
    def size_bytes(self) -> int:
        return self.heap_at + int(self.starts[-1])


class RowsByKey:
    """An open file of rows by key."""

    def __init__(self, descriptor: int, path: str, head: _Head) -> None:
        self._descriptor, self._path, self.head = descriptor, path, head

    def of(self, hashes: Array) -> pa.Table:
        """The rows whose keys have one of these hashes, with their numbers in :data:`ROW`.

        ``hashes``: uint32, ascending, each once. Raises :class:`DamagedRows` and ``OSError``.
        """
        blocks = self._blocks(hashes)
        records, heaps = self._read(blocks)
        counts = np.minimum(BLOCK_ROWS, self.head.rows - blocks * BLOCK_ROWS)
        kept = are_hashes_of(records[_HASH], hashes)
        texts = self._texts(records, counts, heaps)
        chosen = records[kept]
        columns = {ROW: pa.array(chosen[_NUMBER].astype(np.int64))}
        for one in self.head.columns:
            columns[one.name] = texts[one.name].filter(pa.array(kept)) if one.is_text else _column(one, chosen)
        if len(chosen) and int(chosen[_NUMBER].max()) >= self.head.rows:
            raise _damaged(self._path, "a row that its fragment does not have")
        return pa.table(columns)

    def _blocks(self, hashes: Array) -> Array:
        """The blocks that may have rows with one of the hashes, ascending."""
        if not self.head.rows or not len(hashes):
            return np.empty(0, np.int64)
        last = np.searchsorted(self.head.firsts, hashes, side="right") - 1
        first = np.maximum(np.searchsorted(self.head.firsts, hashes) - 1, 0)
        counts = np.maximum(last - first + 1, 0)
        offsets = np.cumsum(counts) - counts
        found: Array = np.unique(np.repeat(first - offsets, counts) + np.arange(int(counts.sum())))
        return found

    def _read(self, blocks: Array) -> tuple[Array, list[bytes]]:
        """The records and the heap of each of the blocks."""
        head, size = self.head, self.head.record_type.itemsize
        parts, heaps = [], []
        ends = np.flatnonzero(np.diff(blocks) != 1) + 1
        for run in np.split(blocks, ends) if len(blocks) else ():
            begin, stop = int(run[0]), int(run[-1]) + 1
            first_row, stop_row = begin * BLOCK_ROWS, min(stop * BLOCK_ROWS, head.rows)
            stored = self._bytes(head.records_at + first_row * size, (stop_row - first_row) * size)
            start, end = int(head.starts[begin]), int(head.starts[stop])
            heap = self._bytes(head.heap_at + start, end - start)
            for block in range(begin, stop):
                at = (block - begin) * BLOCK_ROWS * size
                own = heap[int(head.starts[block]) - start : int(head.starts[block + 1]) - start]
                if zlib.crc32(own, zlib.crc32(stored[at : at + BLOCK_ROWS * size])) != head.checks[block]:
                    raise _damaged(self._path, f"block {block}")
                heaps.append(bytes(own))
            parts.append(stored)
        return np.frombuffer(b"".join(parts), head.record_type), heaps

    def _bytes(self, offset: int, length: int) -> memoryview:
        """Bytes of the file; a longer piece is read in several calls."""
        parts = []
        while length:
            part = os.pread(self._descriptor, length, offset)
            if not part:
                raise _damaged(self._path, "a file that ends early")
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return memoryview(b"".join(parts))

    def _texts(self, records: Array, counts: Array, heaps: Sequence[bytes]) -> dict[str, pa.Array]:
        """The text columns of blocks with so many rows each."""
        columns = [one for one in self.head.columns if one.is_text]
        if not columns:
            return {}
        lengths = [np.where(records[one.value] == _NO_TEXT, 0, records[one.value]).astype(np.int64) for one in columns]
        ends = np.append(0, np.cumsum(counts))
        totals = [np.append(0, np.cumsum(each))[ends] for each in lengths]
        sizes = np.array([np.diff(each) for each in totals], np.int64).reshape(len(columns), len(counts))
        if not np.array_equal(sizes.sum(axis=0), [len(heap) for heap in heaps]):
            raise _damaged(self._path, "texts that do not fit their block")
        stops = np.cumsum(sizes, axis=0)
        found = {}
        for at, one in enumerate(columns):
            data = b"".join(
                heap[stop - size : stop]
                for heap, stop, size in zip(heaps, stops[at].tolist(), sizes[at].tolist(), strict=True)
            )
            offsets = np.append(0, np.cumsum(lengths[at])).astype(np.int64)
            wide = pa.large_string() if one.type in _TEXTS else pa.large_binary()
            valid = pa.array(records[one.value] != _NO_TEXT)
            buffers = [valid.buffers()[1] if len(valid) else None, pa.py_buffer(offsets), pa.py_buffer(data)]
            array = pa.Array.from_buffers(wide, len(records), buffers)
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise _damaged(self._path, str(error)) from None
            found[one.name] = array.cast(_TYPES[one.type])
        return found


def _column(column: _Column, records: Array) -> pa.Array:
    values = np.ascontiguousarray(records[column.value])
    mask = records[column.validity] == 0 if column.is_nullable else None
    if column.type == "bool":
        return pa.array(values != 0, mask=mask)
    array, kind = pa.array(values, mask=mask), _TYPES[column.type]
    return array if array.type == kind else array.view(kind)


def _fixed(array: pa.Array) -> Array:
    """Values in their bytes, 0 for nulls."""
    if pa.types.is_boolean(array.type):
        return np.asarray(pc.fill_null(array, False), np.uint8)
    plain = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()) if pa.types.is_temporal(array.type) else array  # fmt: skip
    found: Array = np.asarray(plain.fill_null(0) if plain.null_count else plain)
    return found


def _sorting(hashes: Array) -> Array:
    """The places of hashes in ascending order, equal ones in their order: by their lower half, then by the upper one, since NumPy sorts numbers of two bytes in linear time."""
    order = np.argsort((hashes & 0xFFFF).astype(np.uint16), kind="stable")
    found: Array = order[np.argsort((hashes >> 16).astype(np.uint16)[order], kind="stable")]
    return found


def _heaped(array: pa.Array) -> tuple[Array, memoryview]:
    """The offsets of texts, and their bytes; nulls have none."""
    wide = array.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    places = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1] if len(wide) else np.zeros(1, np.int64)  # fmt: skip
    return places, memoryview(b"" if data is None else data)


def _heaps(columns: Sequence[tuple[Sequence[int], memoryview]], blocks: int) -> list[bytes]:
    """The bytes of each block, column by column."""
    return [b"".join(data[places[at] : places[at + 1]] for places, data in columns) for at in range(blocks)]


def _damaged(path: str, what: str) -> DamagedRows:
    return DamagedRows("a file of rows by key must have the bytes that were written", where=path, value=what,
                       next_step="its rows are read from their table")  # fmt: skip
