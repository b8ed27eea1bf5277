"""Columns of a table as one Arrow array."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.errors import DataError

_NUMPY = {
    pa.int8(): np.int8, pa.int16(): np.int16, pa.int32(): np.int32, pa.int64(): np.int64, pa.uint8(): np.uint8, pa.uint16(): np.uint16,
    pa.uint32(): np.uint32, pa.uint64(): np.uint64, pa.float16(): np.float16, pa.float32(): np.float32, pa.float64(): np.float64,
}  # fmt: skip


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """All rows as one array, without a copy of a single chunk. Raises :class:`DataError` if they do not fit."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    try:
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    except pa.ArrowInvalid as error:
        raise DataError(
            "chunks of one column must fit in one array", value=str(error), next_step="use smaller fragments"
        ) from error


def compact_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array without the bytes of neighbours that a slice would write into a file."""
    array = one_array(column)
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def numpy_of(array: pa.Array) -> Array:
    """Numbers or truth values in their own memory, read-only, as far as numpy has their layout; what is under a null is left as it is.

    ``pyarrow.Array.to_numpy`` imports pandas where it is installed.
    """
    if len(array) == 0:
        return np.zeros(0, np.bool_ if pa.types.is_boolean(array.type) else _NUMPY[array.type])
    first, last = array.offset, array.offset + len(array)
    memory = array.buffers()[1]
    if pa.types.is_boolean(array.type):
        return np.unpackbits(np.frombuffer(memory, np.uint8), count=last, bitorder="little")[first:].view(np.bool_)
    return np.frombuffer(memory, _NUMPY[array.type], last)[first:]


def valid_of(array: pa.Array) -> Array:
    """Whether each value is not null, bool [rows]."""
    return numpy_of(array.is_valid())
