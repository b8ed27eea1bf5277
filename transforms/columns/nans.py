"""The one NaN: every NaN that is read becomes the quiet NaN, as in fingerprints and literals.

A NaN carries 51 bits that no operator may depend on, but operators that return a value unchanged would copy them:
whether a memo held them would depend on how an expression is written. So columns lose them when they are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_BITS: dict[pa.DataType, tuple[Any, Any, int]] = {
    pa.float32(): (np.float32, np.uint32, 0x7FC00000),
    pa.float64(): (np.float64, np.uint64, 0x7FF8000000000000),
}


def with_one_nan(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """``array``, of any layout of :func:`transforms.columns.arrow_types.arrow_type`, with every NaN the quiet one.

    The array itself if it has no other NaN; nulls stay, also those of a vector.
    """
    if isinstance(array, pa.ChunkedArray):
        chunks = array.chunks
        fixed = [_of_array(chunk) for chunk in chunks]
        same = all(new is old for new, old in zip(fixed, chunks, strict=True))
        return array if same else pa.chunked_array(fixed, array.type)
    return _of_array(array)


def _of_array(array: pa.Array) -> pa.Array:
    if array.type in _BITS:
        return _of_floats(array)
    if not _holds_floats(array.type):
        return array
    if pa.types.is_struct(array.type):
        parts = array.flatten()  # not .field(): that leaves out the offset of a sliced struct
        fixed = [_of_array(part) for part in parts]
        same = all(new is old for new, old in zip(fixed, parts, strict=True))
        return array if same else pa.StructArray.from_arrays(fixed, fields=list(array.type.fields))
    if pa.types.is_fixed_size_list(array.type):
        return _of_vectors(array)
    return _of_lists(array)


def _of_floats(array: pa.Array) -> pa.Array:
    _, data = array.buffers()
    if data is None or len(array) == 0:
        return array
    kind, unsigned, quiet = _BITS[array.type]
    values = np.frombuffer(data, kind)[array.offset : array.offset + len(array)]
    if not np.isnan(values.min()):  # one pass without a copy: the minimum of numbers and a NaN is NaN
        return array
    bits = values.view(unsigned)
    odd = np.isnan(values) & (bits != quiet)
    if not odd.any():
        return array
    fixed = np.where(odd, unsigned(quiet), bits).view(kind)
    return pa.array(fixed, array.type, mask=np.asarray(array.is_null()) if array.null_count else None)


def _of_lists(array: pa.Array) -> pa.Array:
    items = array.values
    fixed = _of_array(items)
    if fixed is items:
        return array
    mask = array.is_null() if array.null_count else None
    return type(array).from_arrays(_offsets(array), fixed, type=array.type, mask=mask)


def _offsets(array: pa.Array) -> pa.Array:
    kind = pa.int64() if pa.types.is_large_list(array.type) else pa.int32()
    return pa.array(array.offsets.to_numpy(zero_copy_only=True), kind)


def _of_vectors(array: pa.Array) -> pa.Array:
    size = array.type.list_size
    items = array.values.slice(array.offset * size, len(array) * size)
    fixed = _of_array(items)
    if fixed is items or array.null_count:  # the reader refuses a null vector
        return array
    return pa.FixedSizeListArray.from_arrays(fixed, type=array.type)


def _holds_floats(stored: pa.DataType) -> bool:
    if pa.types.is_nested(stored):
        return any(_holds_floats(stored.field(i).type) for i in range(stored.num_fields))
    return stored in _BITS
