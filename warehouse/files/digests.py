"""Digests of columns: SHA-256 over logical Arrow values.

Equal columns have equal digests in any chunking, slicing, encoding and compression; a changed value, null or type changes
the digest. The rules, level by level:

* a tag with the type and the row count (large offsets, views, dictionaries and extensions of a type count as that type;
  timestamps keep their unit and zone);
* validity, one byte per row, if and only if there are nulls;
* fixed-width values in little-endian bytes, null slots zeroed; booleans one byte per row;
* text and bytes: lengths as int64, then the bytes that are not null;
* lists: lengths as int64, then the items of the non-null lists as a column of their own; structs: their fields.

Each part is hashed as a stream over the chunks, and the digest is the hash of the parts' hashes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import TypeMismatch
from transforms.graphs.encoding import encode

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_FIXED = (pa.types.is_primitive, pa.types.is_null, pa.types.is_fixed_size_binary, pa.types.is_decimal)
#: Fewer bytes are hashed in less time than threads take to start.
_WORTH_THREADS_BYTES = 1 << 18
_LISTS = (pa.types.is_list, pa.types.is_large_list)


def table_digests(table: pa.Table, threads: int = 0) -> dict[str, str]:
    """The digest of every column by name, in ``threads`` threads (0: one per CPU core); of a small table in this one."""
    workers = threads or os.cpu_count() or 1
    if workers == 1 or table.num_columns == 1 or table.nbytes < _WORTH_THREADS_BYTES:
        return {name: column_digest(table.column(name)) for name in table.column_names}
    with ThreadPoolExecutor(min(workers, table.num_columns)) as pool:
        return dict(zip(table.column_names, pool.map(column_digest, table.columns), strict=True))


def column_digest(column: pa.Array | pa.ChunkedArray) -> str:
    """The digest of one column, 64 hexadecimal digits.

    Raises :class:`TypeMismatch` for a type without a rule (unions, run-end encoded).
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return _digest(column.type, [chunk for chunk in chunks if len(chunk)]).hex()


def _digest(stored: pa.DataType, chunks: list[pa.Array]) -> bytes:
    logical = logical_type(stored)
    if stored != logical:
        chunks = [_plain(chunk, logical) for chunk in chunks]
    nulls = any(chunk.null_count for chunk in chunks)
    parts = [_validity(chunks) if nulls else b""]
    if pa.types.is_struct(logical):
        parts += [
            _digest(logical.field(i).type, [chunk.flatten()[i] for chunk in chunks]) for i in range(logical.num_fields)
        ]
    elif pa.types.is_large_list(logical):
        parts += [
            _hashed(_lengths(chunk) for chunk in chunks),
            _digest(logical.value_type, [chunk.flatten() for chunk in chunks]),
        ]
    elif pa.types.is_fixed_size_list(logical):
        parts.append(_digest(logical.value_type, [chunk.flatten() for chunk in chunks]))
    elif pa.types.is_large_binary(logical) or pa.types.is_large_string(logical):
        parts += [_hashed(_lengths(chunk) for chunk in chunks), _hashed(_text_bytes(chunk) for chunk in chunks)]
    elif not pa.types.is_null(logical):
        parts.append(_hashed(_fixed_width(chunk) for chunk in chunks))
    tag = [_spell(logical), sum(len(chunk) for chunk in chunks)]
    return hashlib.sha256(encode([*tag, *parts])).digest()


def logical_type(stored: pa.DataType) -> pa.DataType:
    """The type that represents all physical variants of ``stored``."""
    if pa.types.is_dictionary(stored):
        return logical_type(stored.value_type)
    if isinstance(stored, pa.BaseExtensionType):
        return logical_type(stored.storage_type)
    if any(check(stored) for check in _TEXT):
        return pa.large_string()
    if any(check(stored) for check in _BYTES):
        return pa.large_binary()
    if pa.types.is_map(stored):
        entry = pa.struct(
            [pa.field("key", logical_type(stored.key_type)), pa.field("value", logical_type(stored.item_type))]
        )
        return pa.large_list(pa.field("item", entry))
    if any(check(stored) for check in _LISTS):
        return pa.large_list(pa.field("item", logical_type(stored.value_type)))
    if pa.types.is_fixed_size_list(stored):
        return pa.list_(pa.field("item", logical_type(stored.value_type)), stored.list_size)
    if pa.types.is_struct(stored):
        fields = (stored.field(i) for i in range(stored.num_fields))
        return pa.struct([pa.field(field.name, logical_type(field.type)) for field in fields])
    if any(check(stored) for check in _FIXED):
        return stored
    raise TypeMismatch("the type of a column must be one with a digest", value=str(stored),
                       allowed="numbers, text, binary, time types, decimals, lists, structs, maps")  # fmt: skip


def _plain(chunk: pa.Array, logical: pa.DataType) -> pa.Array:
    """``chunk`` in its logical type; only offsets widen and dictionaries are decoded."""
    if pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_decode()
    if isinstance(chunk.type, pa.BaseExtensionType):
        chunk = chunk.storage
    return chunk if chunk.type == logical else chunk.cast(logical)


def _spell(logical: pa.DataType) -> str:
    """The type's tag; a nested type's covers only its own level, since its children have tags."""
    if pa.types.is_struct(logical):
        return "struct:" + repr([logical.field(i).name for i in range(logical.num_fields)])
    if pa.types.is_large_list(logical):
        return "list"
    if pa.types.is_fixed_size_list(logical):
        return f"fixed_size_list:{logical.list_size}"
    return str(logical)


def _hashed(parts: Iterable[Any]) -> bytes:
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def _validity(chunks: list[pa.Array]) -> bytes:
    return _hashed(_valid(chunk) for chunk in chunks)


def _valid(chunk: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.ascontiguousarray(chunk.is_valid().to_numpy(zero_copy_only=False))


def _offsets(chunk: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]


def _lengths(chunk: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    lengths = np.diff(_offsets(chunk))
    return np.where(_valid(chunk), lengths, 0) if chunk.null_count else lengths


def _text_bytes(chunk: pa.Array) -> memoryview:
    if chunk.null_count:
        offsets = _offsets(chunk)
        if int(_lengths(chunk).sum()) != int(offsets[-1] - offsets[0]):
            chunk = chunk.drop_null()
    offsets, data = _offsets(chunk), chunk.buffers()[2]
    view = memoryview(b"") if data is None else memoryview(data).cast("B")
    return view[int(offsets[0]) : int(offsets[-1])]


def _fixed_width(chunk: pa.Array) -> np.ndarray[Any, Any]:
    if pa.types.is_boolean(chunk.type):
        filled = pc.fill_null(chunk, False) if chunk.null_count else chunk
        return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False))
    width = chunk.type.bit_width // 8
    raw = np.frombuffer(chunk.buffers()[1], np.uint8)[chunk.offset * width : (chunk.offset + len(chunk)) * width]
    if not chunk.null_count:
        return raw
    kept: np.ndarray[Any, Any] = np.where(_valid(chunk)[:, None], raw.reshape(len(chunk), width), np.uint8(0))
    return kept
