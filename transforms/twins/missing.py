"""Twins of the operators over missing values."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from transforms.operators.declaration import Scalar
from transforms.twins import floats
from transforms.twins.tensors import DenseTensor


def fill_null(column: DenseTensor, *, value: Scalar) -> DenseTensor:
    """``value`` where there is none."""
    if column.valid is None:
        return column
    return DenseTensor(tf.where(column.valid, column.values, _constant(value, column.values.dtype)))


def fill_nan(number: DenseTensor, *, value: float) -> DenseTensor:
    """``value`` where x is NaN."""
    values = number.values
    return DenseTensor(tf.where(tf.math.is_nan(values), _constant(value, values.dtype), values))


def is_nan(number: DenseTensor) -> DenseTensor:
    """Where x is NaN."""
    return DenseTensor(floats.is_nan(floats.wide(number.values)))


def is_null(column: DenseTensor) -> DenseTensor:
    """Where there is no value."""
    if column.valid is None:
        return DenseTensor(tf.zeros(tf.shape(column.values), tf.bool))
    return DenseTensor(~column.valid)


def missing_indicator(column: DenseTensor) -> DenseTensor:
    """1 where there is no value."""
    return DenseTensor(tf.cast(is_null(column).values, tf.int64))


def _constant(value: Scalar, dtype: tf.DType) -> tf.Tensor:
    if not dtype.is_floating:
        return tf.constant(value, dtype)
    with np.errstate(over="ignore"):
        return tf.constant(np.array(value).astype(dtype.as_numpy_dtype))  # by way of numpy, which keeps -0.0
