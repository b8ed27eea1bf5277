"""Columns to Arrow. Compiled code is loaded only for text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.columns.arrow_types import arrow_type
from transforms.columns.columns import Column, Numbers, RaggedItems, Strings, Vectors, WeightedItems
from transforms.columns.positions import as_positions
from transforms.errors import DataError
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

#: The types of numpy whose arrays have the layout of Arrow's; those of truth values are packed. Others are of int64: times.
_STORED = {pa.bool_(): np.bool_, pa.int32(): np.int32, pa.float32(): np.float32, pa.float64(): np.float64}


def to_arrow(column: Column, column_type: ColumnType) -> pa.Array:
    """``column`` in the Arrow layout of ``column_type``: compact, no offset, so that equal columns have equal bytes."""
    if isinstance(column_type, Ragged) and isinstance(column, RaggedItems):
        items = _dense_to_arrow(column.items, column_type.dtype)
        offsets = numbers_to_arrow(as_positions(column.offsets), pa.int32())
        return pa.ListArray.from_arrays(offsets, items, type=arrow_type(column_type))
    if isinstance(column_type, Dense) and isinstance(column, Numbers | Strings):
        return _dense_to_arrow(column, column_type.dtype)
    if isinstance(column_type, Weighted) and isinstance(column, WeightedItems):
        return _weighted_to_arrow(column, column_type)
    if isinstance(column_type, Vector) and isinstance(column, Vectors) and column.size == column_type.size:
        items = _dense_to_arrow(column.items, column_type.dtype)
        return pa.FixedSizeListArray.from_arrays(items, type=arrow_type(column_type))
    raise DataError("a kernel must return a column of its type", value=type(column).__name__, allowed=str(column_type))


def _weighted_to_arrow(column: WeightedItems, column_type: Weighted) -> pa.Array:
    target = arrow_type(column_type)
    items = _dense_to_arrow(column.items, column_type.dtype)
    pairs = pa.StructArray.from_arrays(
        [items, numbers_to_arrow(column.weights, pa.float32())], fields=list(target.value_type.fields)
    )
    offsets = numbers_to_arrow(as_positions(column.offsets), pa.int32())
    return pa.ListArray.from_arrays(offsets, pairs, type=target)


def _dense_to_arrow(column: Numbers | Strings, dtype: DType) -> pa.Array:
    if isinstance(column, Strings):
        return _strings_to_arrow(column)
    return numbers_to_arrow(column.values, arrow_type(Dense(dtype)), column.valid)


def numbers_to_arrow(values: Array, target: pa.DataType, valid: Array | None = None) -> pa.Array:
    """Numbers or truth values as ``pyarrow.array`` makes them, in their own memory where it has the target's layout.

    ``pyarrow.array`` imports pandas where it is installed, to find out whether it was given a Series.
    """
    if values.dtype != _STORED.get(target, np.int64) or values.ndim != 1:
        mask = None if valid is None else ~valid
        return pa.array(values, target, mask=mask)
    own = np.packbits(values, bitorder="little") if pa.types.is_boolean(target) else np.ascontiguousarray(values)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    nulls = 0 if valid is None else int(len(valid) - np.count_nonzero(valid))
    return pa.Array.from_buffers(target, len(values), [bitmap, pa.py_buffer(own)], nulls)


def _strings_to_arrow(column: Strings) -> pa.Array:
    from transforms.kernels.spans import gather_spans

    offsets, data = gather_spans(column.data, column.starts, column.ends)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    null_count = 0
    if column.valid is not None:
        buffers[0] = pa.py_buffer(np.packbits(column.valid, bitorder="little"))
        null_count = int(len(column) - np.count_nonzero(column.valid))
    return pa.Array.from_buffers(pa.string(), len(column), buffers, null_count)
