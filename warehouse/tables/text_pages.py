"""Text columns of Parquet files, decoded by our kernels into the form that plans read.

Arrow's reader hashes each value of a page's dictionary into a dictionary of its own, and copies each plain text twice. Here a
column that is stored as codes keeps its codes, and plain texts are copied once. Only flat columns in the encodings that
writers use by default are decoded here. For all others, damaged ones too, :func:`read_text` gives nothing, and the caller reads
them by Arrow, which also raises the error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.kernels import parquet_pages as kernels
from transforms.kernels.spans import frozen

#: The names of codecs in Parquet's metadata and in Arrow. Arrow returns a buffer of the stated size whatever a codec writes to it,
#: so a codec is here only if it fails for any other size: ZSTD does, Snappy with the size that its data begin with.
_CODECS = {"SNAPPY": "snappy", "ZSTD": "zstd"}
#: Column chunks with at most this distance are read together, up to so many bytes.
_HOLE_BYTES, _RANGE_BYTES = 1 << 13, 1 << 25
#: Larger row groups are read by Arrow: a damaged footer may state any number of rows.
_MOST_ROWS = 1 << 24
_PAGES = 64
#: Plain pages are held until all are measured, so each must be little more than its texts: a text has 4 bytes of length and at
#: most 2 of level, a page some more.
_BYTES_PER_TEXT, _BYTES_PER_PAGE = 8, 64
#: A code has at most 5 bytes (a run of one) and 2 of level. Larger pages are padded: what they need would be in no proportion to
#: their rows, and the allocator may keep a hole for each.
_BYTES_PER_CODE = 8
_UNCOMPRESSED = "UNCOMPRESSED"
_DICTIONARY_ENCODINGS = (kernels.PLAIN_DICTIONARY, kernels.RLE_DICTIONARY)
_SNAPPY_SIZE_BYTES = 5
_NO_LEVELS = _NO_BYTES = np.zeros(0, np.uint8)
_CODES = pa.dictionary(pa.int32(), pa.string())
#: Buffers of Arrow's own allocators go back to the system after each batch, and every page of the next one faults.
_POOL = pa.system_memory_pool()
#: Larger pages are rare, and the system's allocator may keep many of them after they are freed.
_POOL_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column in a row group: its name, its bytes in the file, how they are stored, and their stated size without a codec."""

    name: str
    start: int
    size: int
    plain_size: int
    rows: int
    codec: str
    nullable: bool
    coded: bool


@dataclass(frozen=True, slots=True)
class _Dictionary:
    """The texts of a dictionary page."""

    offsets: Array
    data: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def to_arrow(self, *, null: bool) -> pa.Array:
        """The texts as an array, with a null behind them if ``null``."""
        offsets, validity, size = self.offsets, None, len(self)
        if null:
            offsets, validity = np.append(offsets, offsets[-1]), _all_but_last(size + 1)
        return pa.Array.from_buffers(
            pa.string(), size + null, [validity, pa.py_buffer(offsets), pa.py_buffer(self.data)], int(null)
        )


def _all_but_last(size: int) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.arange(size) < size - 1, bitorder="little"))


@dataclass(frozen=True, slots=True)
class _Page:
    """A data page: ``levels`` is empty without nulls; plain texts begin ``at`` in ``data``, and ``codes`` is None for them."""

    data: Array
    levels: Array
    at: int
    codes: Array | None


def read_text(source: Any, file: Any, groups: Sequence[int], names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Those of the text columns ``names`` that can be decoded here, as Arrow's reader gives them, a chunk a row group.

    A coded column has null as a value of its dictionary, not in its codes. Dictionaries are not checked for UTF-8.

    Args:
        source: the file, opened for random reads.
        file: the ``ParquetFile`` over ``source``; its ``read_dictionary`` names the coded columns.
        groups: the row groups, which the file has.
        names: columns whose metadata can be read.
    """
    index_of = _flat_columns(file)
    schema = file.schema_arrow  # made again from the footer at each request
    held = [file.metadata.row_group(group) for group in groups]
    wanted = {
        name: [_chunk(file, schema, rows, name, index_of[name]) for rows in held] for name in names if name in index_of
    }
    found: dict[_Chunk | None, pa.Array] = {}
    size = source.size()
    whole = [chunk for chunks in wanted.values() if all(chunks) for chunk in chunks
             if chunk is not None and chunk.start + chunk.size <= size]  # fmt: skip
    for near in _ranges(whole):
        start = near[0].start
        content = np.empty(max(chunk.start + chunk.size for chunk in near) - start, np.uint8)
        source.seek(start)
        if source.readinto(content) != len(content):
            continue
        content = frozen(content)
        for chunk in near:
            array = _decode(content[chunk.start - start :][: chunk.size], chunk)
            if array is not None:
                found[chunk] = array
    return {
        name: pa.chunked_array([found[chunk] for chunk in chunks])
        for name, chunks in wanted.items()
        if chunks and all(chunk in found for chunk in chunks)
    }


def _flat_columns(file: Any) -> dict[str, int]:
    """The index of each column that is not nested, by name; not those of a name that two columns have.

    A nested column's path is joined by dots, so it may be the name of another column.
    """
    columns = [file.schema.column(index) for index in range(file.metadata.num_columns)]
    twice = {path for path, count in Counter(column.path for column in columns).items() if count > 1}
    return {
        column.name: index
        for index, column in enumerate(columns)
        if column.name == column.path and column.path not in twice
    }


def _chunk(file: Any, schema: pa.Schema, held_rows: Any, name: str, index: int) -> _Chunk | None:
    """A column in a row group; None unless it is flat text of a type and codec that are decoded here."""
    column = file.schema.column(index)
    if column.max_repetition_level or column.max_definition_level > 1 or column.physical_type != "BYTE_ARRAY":
        return None
    field = schema.get_field_index(name)
    if field < 0 or (stored := schema.field(field).type) not in (_CODES, pa.string()):
        return None
    rows, held = held_rows.num_rows, held_rows.column(index)
    if held.file_path or held.num_values != rows or not 0 < rows <= _MOST_ROWS:
        return None
    if held.compression not in _CODECS and held.compression != _UNCOMPRESSED:
        return None
    start = held.data_page_offset
    if held.has_dictionary_page and 0 < held.dictionary_page_offset < start:
        start = held.dictionary_page_offset
    if start < 0 or held.total_compressed_size < 0:
        return None
    return _Chunk(name, start, held.total_compressed_size, held.total_uncompressed_size, rows, held.compression,
                  column.max_definition_level == 1, stored == _CODES)  # fmt: skip


def _ranges(chunks: Sequence[_Chunk]) -> list[list[_Chunk]]:
    """The chunks in groups that are read at once, in the order of the file."""
    ranges: list[list[_Chunk]] = []
    end = 0
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        stop = max(end, chunk.start + chunk.size)
        if ranges and chunk.start - end <= _HOLE_BYTES and stop - ranges[-1][0].start <= _RANGE_BYTES:
            ranges[-1].append(chunk)
            end = stop
        else:
            ranges.append([chunk])
            end = chunk.start + chunk.size
    return ranges


def _decode(content: Array, chunk: _Chunk) -> pa.Array | None:
    table = np.empty((_PAGES, kernels.PAGE_FIELDS), np.int64)
    count = kernels.write_pages(content, chunk.rows, table)
    if count > len(table):
        table = np.empty((count, kernels.PAGE_FIELDS), np.int64)
        kernels.write_pages(content, chunk.rows, table)
    if count <= 0:
        return None
    rows = table[:count].tolist()
    if sum(row[kernels.BYTES] for row in rows) > chunk.plain_size or any(_is_padded(row) for row in rows):
        return None
    pages = _Pages(content, chunk.codec)
    dictionary = None
    if rows[0][kernels.KIND] == kernels.DICTIONARY_PAGE:
        dictionary = _dictionary(pages.body(rows[0]), rows[0])
        if dictionary is None:
            return None
        rows = rows[1:]
    if not chunk.coded:
        return _texts(rows, pages, dictionary, chunk)
    return None if dictionary is None else _coded(rows, pages, dictionary, chunk)


def _is_padded(row: Sequence[int]) -> bool:
    return (
        row[kernels.KIND] != kernels.DICTIONARY_PAGE
        and row[kernels.ENCODING] in _DICTIONARY_ENCODINGS
        and row[kernels.BYTES] > _BYTES_PER_CODE * row[kernels.VALUES] + _BYTES_PER_PAGE
    )


class _Pages:
    """The stored pages of a chunk, decompressed one at a time: what a header states costs at most the memory of its page."""

    def __init__(self, content: Array, codec: str) -> None:
        self._stored, self._codec = pa.py_buffer(content), codec
        self._decompress = None if codec == _UNCOMPRESSED else pa.Codec(_CODECS[codec]).decompress

    def body(self, row: Sequence[int]) -> Array | None:
        """The decompressed bytes of a page; None unless they are as many as its header states."""
        size, stored_bytes = row[kernels.BYTES], row[kernels.STORED_BYTES]
        body: Any = self._stored.slice(row[kernels.BODY], stored_bytes)
        if self._decompress is not None and stored_bytes:
            if self._codec == "SNAPPY" and _snappy_size(body) != size:
                return None
            try:
                body = self._decompress(body, size, memory_pool=_POOL if size <= _POOL_BYTES else None)
            except (pa.ArrowException, OSError, MemoryError):  # Arrow's reader raises it
                return None
        return frozen(np.frombuffer(body, np.uint8)) if body.size == size else None


def _snappy_size(stored: pa.Buffer) -> int:
    """The size that Snappy data begin with and decompress to, or -1."""
    size = 0
    for place, byte in enumerate(bytes(stored.slice(0, min(_SNAPPY_SIZE_BYTES, stored.size)))):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            return size
    return -1


def _dictionary(body: Array | None, row: Sequence[int]) -> _Dictionary | None:
    values = row[kernels.VALUES]
    if (
        body is None
        or row[kernels.ENCODING] not in (kernels.PLAIN, kernels.PLAIN_DICTIONARY)
        or not 0 <= 4 * values <= len(body)
    ):
        return None
    offsets = np.zeros(values + 1, np.int32)
    if not kernels.measure_plain(body, 0, _NO_LEVELS, offsets):
        return None
    data = np.empty(int(offsets[-1]), np.uint8)
    kernels.copy_plain(body, 0, _NO_LEVELS, offsets, data)
    return _Dictionary(offsets, data)


def _coded(rows: Sequence[Sequence[int]], pages: _Pages, dictionary: _Dictionary, chunk: _Chunk) -> pa.Array | None:
    null, codes, at, nulls = len(dictionary), np.empty(chunk.rows, np.int32), 0, 0
    longest = max(row[kernels.VALUES] for row in rows)
    levels, defined = np.empty(longest, np.uint8), np.empty(longest + 1, np.int32)
    for row in rows:
        body = pages.body(row)
        if body is None or row[kernels.ENCODING] not in _DICTIONARY_ENCODINGS:
            return None
        part = codes[at : at + row[kernels.VALUES]]
        found = kernels.read_coded_page(body, chunk.nullable, null, levels, defined, part)
        if found < 0:
            return None
        at, nulls = at + len(part), nulls + found
        del body  # before the next is allocated: else each leaves a hole that is too small for another
    return pa.DictionaryArray.from_arrays(pa.array(codes), dictionary.to_arrow(null=nulls > 0), safe=False)


def _page(
    body: Array, row: Sequence[int], chunk: _Chunk, dictionary: _Dictionary | None, levels: Array
) -> _Page | None:
    defined, at = row[kernels.VALUES], 0
    if chunk.nullable:
        defined, at = kernels.read_nullable(body, levels)
        if defined < 0:
            return None
        levels = levels if defined < len(levels) else levels[:0]
    else:
        levels = levels[:0]
    if row[kernels.ENCODING] == kernels.PLAIN:
        return _Page(body, levels, at, None)
    if row[kernels.ENCODING] not in _DICTIONARY_ENCODINGS or dictionary is None:
        return None
    codes = np.empty(defined, np.int32)
    if not kernels.read_checked_codes(body, at, len(dictionary), codes):
        return None
    return _Page(_NO_BYTES, levels, 0, codes)


def _texts(
    rows: Sequence[Sequence[int]], pages: _Pages, dictionary: _Dictionary | None, chunk: _Chunk
) -> pa.Array | None:
    levels, offsets = np.ones(chunk.rows, np.uint8), np.empty(chunk.rows + 1, np.int32)
    offsets[0] = at = 0
    measured: list[tuple[_Page, Array]] = []
    for row in rows:
        end, body = at + row[kernels.VALUES], pages.body(row)
        page = None if body is None else _page(body, row, chunk, dictionary, levels[at:end])
        if page is None or not _measure(page, dictionary, offsets[at : end + 1]):
            return None
        text_bytes = int(offsets[end]) - int(offsets[at])
        if len(page.data) > text_bytes + _BYTES_PER_TEXT * (end - at) + _BYTES_PER_PAGE:
            return None
        measured.append((page, offsets[at : end + 1]))
        at = end
        del body, page  # as above
    texts = np.empty(int(offsets[-1]), np.uint8)
    for page, part in measured:
        if page.codes is None:
            kernels.copy_plain(page.data, page.at, page.levels, part, texts)
        else:
            assert dictionary is not None, "codes were checked against a dictionary"
            kernels.copy_coded(page.codes, page.levels, dictionary.offsets, dictionary.data, part, texts)
    nulls = int(len(levels) - np.count_nonzero(levels)) if chunk.nullable else 0
    validity = pa.py_buffer(np.packbits(levels, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(pa.string(), chunk.rows, [validity, pa.py_buffer(offsets), pa.py_buffer(texts)], nulls)


def _measure(page: _Page, dictionary: _Dictionary | None, offsets: Array) -> bool:
    if page.codes is None:
        return bool(kernels.measure_plain(page.data, page.at, page.levels, offsets))
    assert dictionary is not None, "codes were checked against a dictionary"
    return bool(kernels.measure_coded(page.codes, page.levels, dictionary.offsets, offsets))
