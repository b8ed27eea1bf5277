"""Columns as one Arrow array that holds its own rows and no others."""

from __future__ import annotations

import pyarrow as pa


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array without slack: a slice would carry bytes of its neighbours into a file."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return pa.concat_arrays([column, column.slice(0, 0)]) if column.offset else column
