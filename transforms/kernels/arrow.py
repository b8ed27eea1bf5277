"""Columns to Arrow. Compiled code is loaded only for text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from transforms.columns.columns import Column, Numbers, RaggedItems, Strings, Vectors, WeightedItems
from transforms.columns.positions import as_positions
from transforms.errors import DataError
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted, arrow_type


def to_arrow(column: Column, column_type: ColumnType) -> pa.Array:
    """``column`` in the Arrow layout of ``column_type``: compact, no offset, so that equal columns have equal bytes."""
    if isinstance(column_type, Ragged) and isinstance(column, RaggedItems):
        items = _dense_to_arrow(column.items, column_type.dtype)
        offsets = pa.array(as_positions(column.offsets), pa.int32())
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
        [items, pa.array(column.weights, pa.float32())], fields=list(target.value_type.fields)
    )
    offsets = pa.array(as_positions(column.offsets), pa.int32())
    return pa.ListArray.from_arrays(offsets, pairs, type=target)


def _dense_to_arrow(column: Numbers | Strings, dtype: DType) -> pa.Array:
    if isinstance(column, Strings):
        return _strings_to_arrow(column)
    mask = None if column.valid is None else ~column.valid
    if dtype is DType.TIMESTAMP:
        return pa.array(column.values, pa.int64(), mask=mask).cast(arrow_type(Dense(dtype)))
    return pa.array(column.values, arrow_type(Dense(dtype)), mask=mask)


def _strings_to_arrow(column: Strings) -> pa.Array:
    from transforms.kernels.spans import gather_spans

    offsets, data = gather_spans(column.data, column.starts, column.ends)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    null_count = 0
    if column.valid is not None:
        buffers[0] = pa.array(column.valid, pa.bool_()).buffers()[1]
        null_count = int(len(column) - np.count_nonzero(column.valid))
    return pa.Array.from_buffers(pa.string(), len(column), buffers, null_count)
