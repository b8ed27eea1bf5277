"""Columns of a table as one Arrow array."""

from __future__ import annotations

import pyarrow as pa

from transforms.errors import DataError


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
