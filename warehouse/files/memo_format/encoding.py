"""Encoding and decoding of a column's values by one of four codecs, chosen by the values.

An :class:`Encoding` has all that decoding needs. It is checked against the stored bytes before they are decoded, so that no
content makes the decoder read or write out of bounds.
"""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.errors import DataError
from warehouse.files.memo_format.bit_packing import (
    LANES,
    LONGEST_CODE_BITS,
    NEAR_BITS,
    choose,
    pack,
    pack_terms,
    packed_words,
)

#: Equal values are stored without bytes, up to this many and :data:`CONSTANTS_PER_ROW` for each row: reading must not need memory
#: out of proportion to the rows and the stored bytes.
_CONSTANTS = 1 << 20
CONSTANTS_PER_ROW = 1024
#: A block of ZSTD has at least 4 bytes and decompresses to at most 128 KiB.
_LARGEST_RATIO = 1 << 15
_KEPT = threading.local()


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
    codes = np.empty(len(values), np.uint16)
    terms = np.empty(min(1 << LONGEST_CODE_BITS, len(values) // 4), values.dtype)
    least, width, found = choose(values, constants, _places(), terms, codes)
    if found:
        code_width = (found - 1).bit_length()
        head = packed_words(found, width)
        words = np.zeros(head + packed_words(len(values), code_width), np.uint64)
        pack_terms(terms[:found], least, width, codes, code_width, words, LANES)
        return Encoding(Codec.TERMS, len(values), least, width, code_width, found), words
    if width <= 64:
        words = np.zeros(packed_words(len(values), width), np.uint64)
        if width:
            pack(values, least, width, words, LANES)
        return Encoding(Codec.PACKED, len(values), least, width), words
    return Encoding(Codec.RAW, len(values)), values


def _places() -> Array:
    """Zeros for :func:`choose`, kept for this thread's next column."""
    if not hasattr(_KEPT, "places"):
        _KEPT.places = np.zeros(1 << NEAR_BITS, np.int32)
    places: Array = _KEPT.places
    return places


def mismatch(encoding: Encoding) -> DataError:
    """The error for stored bytes that do not match their encoding."""
    return DataError("stored bytes must match their encoding", value=encoding)


def _require(encoding: Encoding, holds: bool) -> None:
    if not holds:
        raise mismatch(encoding)


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
