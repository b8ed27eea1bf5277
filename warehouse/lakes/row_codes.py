"""A small integer for each distinct row, exactly: rows have equal codes if and only if all their values are equal. Pure.

Floats are equal by their bits, so NaN equals NaN and 0.0 differs from -0.0. Nulls are equal.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from transforms.arrays import Ints
from transforms.columns.arrays import one_array

_FLOAT_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def row_codes(columns: Iterable[pa.ChunkedArray | pa.Array], rows: int) -> Ints:
    """The codes of rows by these columns, each of ``rows`` values."""
    folded = np.zeros(rows, np.int64)
    for column in columns:
        folded = _fold(folded, value_codes(one_array(column)))
    return folded


def value_codes(array: pa.Array) -> Ints:
    """The code of each value; null has code 0."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return value_codes(array.storage)
    if pat.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pat.is_dictionary(kind):
        return value_codes(array.dictionary_decode())
    if pat.is_struct(kind):
        codes = np.asarray(array.is_valid()).astype(np.int64)
        for field in array.flatten():
            codes = _fold(codes, value_codes(field))
        return np.where(np.asarray(array.is_null()), 0, codes + 1)
    if pat.is_fixed_size_list(kind):
        array = array.cast(pa.large_list(kind.value_type))
        kind = array.type
    if pat.is_map(kind):
        # A map's storage is a list of pairs of a key and a value.
        items = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        offsets = pa.array(np.asarray(array.offsets), pa.int32())
        array = pa.ListArray.from_arrays(offsets, items, mask=array.is_null())
        kind = array.type
    if pat.is_list(kind) or pat.is_large_list(kind):
        return _list_codes(array)
    if pat.is_floating(kind):
        array = _canonical(array).view(_FLOAT_BITS[kind.bit_width])
    indices = array.dictionary_encode().indices
    return np.asarray(indices.fill_null(-1)).astype(np.int64) + 1


def _canonical(array: pa.Array) -> pa.Array:
    """The array without an offset, which ``view`` needs for its validity."""
    return pa.concat_arrays([array]) if array.offset else array


def _list_codes(array: pa.Array) -> Ints:
    """Lists as the bytes of their items' codes."""
    items = value_codes(array.flatten())
    lengths = np.asarray(array.value_lengths().fill_null(0)).astype(np.int64)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths * 8, out=offsets[1:])
    content = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(items))]
    )
    codes = np.asarray(content.dictionary_encode().indices).astype(np.int64) + 1
    return np.where(np.asarray(array.is_null()), 0, codes)


def _fold(folded: Ints, codes: Ints) -> Ints:
    """A small integer for each distinct pair."""
    pairs = folded * (int(codes.max(initial=0)) + 1) + codes
    return np.asarray(pa.array(pairs).dictionary_encode().indices).astype(np.int64)
