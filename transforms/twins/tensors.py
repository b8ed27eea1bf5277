"""Columns as TensorFlow tensors, and their conversion to and from Arrow.

A dense column is its values and a mask, a ragged one a ``tf.RaggedTensor`` of one ragged dimension, whose row splits are
int64. Timestamps are int64 microseconds. Null slots hold zero, False or the empty text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

ELEMENT: dict[DType, tf.DType] = {
    DType.BOOL: tf.bool,
    DType.INT64: tf.int64,
    DType.FLOAT32: tf.float32,
    DType.FLOAT64: tf.float64,
    DType.STRING: tf.string,
    DType.TIMESTAMP: tf.int64,
}


@dataclass(frozen=True, slots=True)
class DenseTensor:
    """``values``: shape [rows]. ``valid``: bool of the same shape, or None when no row is null."""

    values: tf.Tensor
    valid: tf.Tensor | None = None


@dataclass(frozen=True, slots=True)
class WeightedTensor:
    """``ids`` and float32 ``weights``, with equal row splits."""

    ids: tf.RaggedTensor
    weights: tf.RaggedTensor


@dataclass(frozen=True, slots=True)
class VectorTensor:
    """``values``: shape [rows, size]."""

    values: tf.Tensor


@dataclass(frozen=True, slots=True)
class ConstantsTensor:
    """``values``: what an artifact holds, shared by all rows."""

    values: tf.Tensor


#: DenseTensor, tf.RaggedTensor, WeightedTensor, VectorTensor or ConstantsTensor; TensorFlow has no types to check.
TensorColumn: TypeAlias = Any


def rows_of(column: TensorColumn) -> tf.Tensor:
    """The number of rows, int64."""
    match column:
        case DenseTensor() | VectorTensor():
            return tf.shape(column.values, tf.int64)[0]
        case WeightedTensor():
            return column.ids.nrows()
        case tf.RaggedTensor():
            return column.nrows()
        case _:
            raise DataError("constants have no rows", value=type(column).__name__)


def both(a: tf.Tensor | None, b: tf.Tensor | None) -> tf.Tensor | None:
    """The conjunction of two masks; None means all True."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


def zeroed(values: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """``values`` where ``valid``, elsewhere zero, False or the empty text."""
    return tf.where(valid, values, tf.zeros([], values.dtype))


def emptied(lists: tf.RaggedTensor, valid: tf.Tensor) -> tf.RaggedTensor:
    """The same lists, those where ``valid`` is False emptied."""
    return tf.ragged.boolean_mask(lists, lists.with_values(tf.gather(valid, lists.value_rowids())))


def from_arrow(array: pa.Array, column_type: ColumnType) -> TensorColumn:
    """An Arrow array of ``arrow_type(column_type)`` as tensors."""
    match column_type:
        case Dense(dtype=dtype):
            values, valid = _values(array, dtype)
            return DenseTensor(tf.constant(values, ELEMENT[dtype]), None if valid is None else tf.constant(valid))
        case Ragged(dtype=dtype):
            return _ragged(array, array.flatten(), dtype)
        case Weighted(dtype=dtype):
            ids, weights = array.flatten().flatten()
            return WeightedTensor(_ragged(array, ids, dtype), _ragged(array, weights, DType.FLOAT32))
        case Vector(dtype=dtype, size=size):
            values, _ = _values(array.flatten(), dtype)
            return VectorTensor(tf.reshape(tf.constant(values, ELEMENT[dtype]), [-1, size]))


def _values(array: pa.Array, dtype: DType) -> tuple[np.ndarray, np.ndarray | None]:
    valid = np.asarray(array.is_valid()) if array.null_count else None
    if dtype is DType.TIMESTAMP:
        array = array.cast(pa.int64())
    if valid is not None:
        array = pc.fill_null(array, {DType.STRING: "", DType.BOOL: False}.get(dtype, 0))
    if dtype is DType.STRING:
        return np.array([value.encode() for value in array.to_pylist()], object), valid
    return array.to_numpy(zero_copy_only=False), valid


def _ragged(lists: pa.Array, items: pa.Array, dtype: DType) -> tf.RaggedTensor:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    return tf.RaggedTensor.from_row_lengths(tf.constant(_values(items, dtype)[0], ELEMENT[dtype]), lengths)


def to_arrow(column: TensorColumn, column_type: ColumnType) -> pa.Array:
    """Tensors as an Arrow array of ``arrow_type(column_type)``."""
    target = arrow_type(column_type)
    match column:
        case DenseTensor():
            mask = None if column.valid is None else ~column.valid.numpy()
            return _array(column.values, column_type.dtype, mask)
        case tf.RaggedTensor():
            return pa.ListArray.from_arrays(_offsets(column), _array(column.values, column_type.dtype), type=target)
        case WeightedTensor():
            parts = [_array(column.ids.values, column_type.dtype), _array(column.weights.values, DType.FLOAT32)]
            pairs = pa.StructArray.from_arrays(parts, fields=list(target.value_type.fields))
            return pa.ListArray.from_arrays(_offsets(column.ids), pairs, type=target)
        case VectorTensor():
            return pa.FixedSizeListArray.from_arrays(
                _array(tf.reshape(column.values, [-1]), column_type.dtype), type=target
            )
        case _:
            raise DataError("constants are not a column", value=type(column).__name__)


def _offsets(ragged: tf.RaggedTensor) -> pa.Array:
    return pa.array(ragged.row_splits.numpy().astype(np.int32))


def _array(values: tf.Tensor, dtype: DType, mask: np.ndarray | None = None) -> pa.Array:
    plain = values.numpy()
    if dtype is DType.STRING:
        return pa.array(
            [None if mask is not None and mask[i] else bytes(at) for i, at in enumerate(plain)], pa.binary()
        ).cast(pa.string())
    target = arrow_type(Dense(dtype))
    if dtype is DType.TIMESTAMP:
        return pa.array(plain, pa.int64(), mask=mask).cast(target)
    return pa.array(plain, target, mask=mask)
