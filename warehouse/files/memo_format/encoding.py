"""Encoding and decoding of a column's values by one of four codecs, chosen by the values.

An :class:`Encoding` has all that decoding needs. It is checked against the stored bytes before they are decoded, so that no
content makes the decoder read or write out of bounds.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from transforms.errors import DataError
from warehouse.files.memo_format.bit_packing import (
    LANES,
    Array,
    find_terms,
    pack,
    packed_words,
    to_offsets,
    unpack,
    unpack_terms,
)

#: Equal values are stored without bytes, up to this many and :data:`CONSTANTS_PER_ROW` for each row: reading must not need memory
#: out of proportion to the rows and the stored bytes.
_CONSTANTS = 1 << 20
CONSTANTS_PER_ROW = 1024
#: A block of ZSTD has at least 4 bytes and decompresses to at most 128 KiB.
_LARGEST_RATIO = 1 << 15
#: The most bits of a term's code.
_LONGEST_CODE_BITS = 16
_WORD = np.dtype("<u8")


class Codec(IntEnum):
    """The codec of a segment."""

    RAW = 0  # little-endian values, or bits, lowest first
    PACKED = 1  # differences to a base, in `width` bits each
    TERMS = 2  # the distinct values, packed, then the index of each value among them in `code_width` bits
    ZSTD = 3  # bytes, compressed


class Encoding(NamedTuple):
    """A codec, its number of ``values`` (or bytes, or bits), and its parameters; unused ones are 0."""

    codec: int
    values: int
    base: int = 0
    width: int = 0
    code_width: int = 0
    terms: int = 0


def most_constants(rows: int) -> int:
    """The most equal values that a column of ``rows`` may store without bytes."""
    return _CONSTANTS + CONSTANTS_PER_ROW * rows


def encode_integers(values: Array, constants: int = _CONSTANTS) -> tuple[Encoding, Any]:
    """The encoding of int32 or int64 integers or bit patterns, and the bytes to store.

    Terms and codes if they save a quarter of the other bytes, else bit packing if it saves an eighth of the raw bytes. More equal
    values than ``constants`` take one bit each.
    """
    if not len(values):
        return Encoding(Codec.RAW, 0), b""
    least, greatest = int(values.min()), int(values.max())
    width = (greatest - least).bit_length() or (1 if len(values) > constants else 0)
    packed_bytes = 8 * packed_words(len(values), width)
    is_packed = 8 * packed_bytes <= 7 * values.nbytes
    coded = _encode_terms(values, least, width, packed_bytes if is_packed else values.nbytes) if width > 1 else None
    if coded is not None:
        return coded
    if is_packed:
        return Encoding(Codec.PACKED, len(values), least, width), _packed(values, least, width)
    return Encoding(Codec.RAW, len(values)), values.astype(values.dtype.newbyteorder("<"), copy=False)


def _packed(values: Array, base: int, width: int) -> Array:
    words = np.zeros(packed_words(len(values), width), np.uint64)
    if width:
        pack(values, base, width, words, LANES)
    return words.astype(_WORD, copy=False)


def _encode_terms(values: Array, least: int, width: int, else_bytes: int) -> tuple[Encoding, Any] | None:
    """Terms and codes if they take at most three quarters of ``else_bytes``, else None."""
    limit = min(1 << min(3 * width // 4, _LONGEST_CODE_BITS), len(values) // 4)
    if limit < 1:
        return None
    slots = np.zeros(1 << (2 * limit).bit_length(), np.int32)
    terms, codes = np.empty(limit, values.dtype), np.empty(len(values), np.int32)
    found = find_terms(values, slots, terms, codes)
    code_width = max(found - 1, 0).bit_length()
    if found < 0 or 32 * (packed_words(found, width) + packed_words(len(values), code_width)) > 3 * else_bytes:
        return None
    parts = (_packed(terms[:found], least, width), _packed(codes, 0, code_width))
    return Encoding(Codec.TERMS, len(values), least, width, code_width, found), np.concatenate(parts)


def decode_integers(encoding: Encoding, stored: Array, kind: np.dtype[Any], constants: int = _CONSTANTS) -> Array:
    """The values as ``kind`` (int32 or int64) from the stored bytes.

    Raises :class:`DataError` if encoding and bytes do not match, and for more than ``constants`` values without bytes.
    """
    codec, count, base, width, code_width, terms = encoding
    is_constant = codec != Codec.RAW and (width if codec == Codec.PACKED else code_width) == 0
    _require(encoding, not is_constant or count <= constants)
    if codec == Codec.PACKED:
        return _unpacked(encoding, stored, count, base, width, kind)
    if codec == Codec.RAW:
        _require(encoding, len(stored) == count * kind.itemsize)
        return stored.view(kind.newbyteorder("<")).astype(kind, copy=True)
    _require(encoding, codec == Codec.TERMS and code_width <= _LONGEST_CODE_BITS and 1 <= terms <= 1 << code_width)
    head = 8 * packed_words(terms, width)
    _require(encoding, len(stored) == head + 8 * packed_words(count, code_width))
    table = np.zeros(1 << code_width, kind)
    table[:terms] = _unpacked(encoding, stored[:head], terms, base, width, kind)
    if not code_width:
        return np.full(count, table[0], kind)
    out = np.empty(count, kind)
    unpack_terms(_words(stored[head:]), code_width, table, out, LANES)
    return out


def _unpacked(encoding: Encoding, stored: Array, count: int, base: int, width: int, kind: np.dtype[Any]) -> Array:
    _require(encoding, width <= 64 and len(stored) == 8 * packed_words(count, width))
    if not width:
        return np.full(count, base, np.int64).astype(kind, copy=False)
    out = np.empty(count, kind)
    unpack(_words(stored), base, width, out, LANES)
    return out


def _words(stored: Array) -> Array:
    words = stored.view(np.uint64)
    return words if sys.byteorder == "little" else words.byteswap()


def _require(encoding: Encoding, holds: bool) -> None:
    if not holds:
        raise DataError("stored bytes must match their encoding", value=encoding)


def encode_bytes(content: Any) -> tuple[Encoding, Any]:
    """The encoding of bytes, compressed if that makes them fewer."""
    view = memoryview(content)
    if len(view):
        packed = pa.compress(pa.py_buffer(view), "zstd", asbytes=True)
        if len(packed) < len(view):
            return Encoding(Codec.ZSTD, len(view)), packed
    return Encoding(Codec.RAW, len(view)), view


def decode_bytes(encoding: Encoding, stored: Array) -> pa.Buffer:
    """The inverse of :func:`encode_bytes`. Raises :class:`DataError`, and ArrowException for invalid ZSTD data."""
    if encoding.codec == Codec.ZSTD:
        _require(encoding, 0 < encoding.values <= _LARGEST_RATIO * len(stored))
        return pa.decompress(pa.py_buffer(stored), encoding.values, "zstd")
    _require(encoding, encoding.codec == Codec.RAW and len(stored) == encoding.values)
    return pa.py_buffer(stored.copy())


def decode_bits(encoding: Encoding, stored: Array) -> pa.Buffer:
    """An Arrow bitmap. Raises :class:`DataError`."""
    _require(encoding, encoding.codec == Codec.RAW and len(stored) == -(-encoding.values // 8))
    return pa.py_buffer(stored.copy())


def decode_offsets(encoding: Encoding, stored: Array, constants: int = _CONSTANTS) -> tuple[Array, int]:
    """int32 offsets from stored lengths, and the last one. Raises :class:`DataError` as :func:`decode_integers` does."""
    lengths = decode_integers(encoding, stored, np.dtype(np.int32), constants)
    offsets = np.empty(len(lengths) + 1, np.int32)
    total = to_offsets(lengths, offsets)
    _require(encoding, total >= 0)
    return offsets, total
