"""The twin of ``cast``. A value without a counterpart in the new type is marked null."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from transforms.twins import floats
from transforms.twins.tensors import ELEMENT, DenseTensor
from transforms.types import DType

Tensor = Any

_LOW_DIGITS = 9
_DIGITS_MAX = 19


def cast(column: DenseTensor, *, dtype: str) -> DenseTensor:
    """The column as another element type; timestamps and int64 share their representation."""
    values, target = column.values, ELEMENT[DType(dtype)]
    if values.dtype == tf.string:
        return column if target == tf.string else whole_numbers(values)
    if target == tf.string:
        return DenseTensor(tf.strings.as_string(values))
    if target == tf.bool:
        return DenseTensor(_is_not_zero(values))
    if target.is_floating:
        return DenseTensor(floats.rounded(floats.wide(values), target))
    return _whole(floats.wide(values)) if values.dtype.is_floating else DenseTensor(tf.cast(values, tf.int64))


def _is_not_zero(values: Tensor) -> Tensor:
    if values.dtype.is_floating:
        return floats.magnitude(floats.wide(values)) > 0
    return tf.not_equal(tf.cast(values, tf.int64), 0)


def _whole(x: Tensor) -> DenseTensor:
    fits = (x >= -(2.0**63)) & (x < 2.0**63)
    return DenseTensor(tf.cast(tf.where(fits, x, tf.zeros([], tf.float64)), tf.int64), fits)


def whole_numbers(texts: Tensor) -> DenseTensor:
    """Whole numbers from decimal text, in two parts that TensorFlow can read: all but the last nine digits, and these."""
    good = tf.strings.regex_full_match(texts, "[+-]?[0-9]+")
    negative = tf.strings.regex_full_match(texts, "-[^-]*")
    digits = tf.strings.regex_replace(tf.where(good, texts, "0"), "^[+-]?0*", "", replace_global=False)
    good &= tf.strings.length(digits) <= _DIGITS_MAX
    padded = tf.strings.join(["0" * _DIGITS_MAX, tf.where(good, digits, "")])
    padded = tf.strings.substr(padded, -_DIGITS_MAX, _DIGITS_MAX)
    high = tf.strings.to_number(tf.strings.substr(padded, 0, _DIGITS_MAX - _LOW_DIGITS), tf.int64)
    low = tf.strings.to_number(tf.strings.substr(padded, _DIGITS_MAX - _LOW_DIGITS, _LOW_DIGITS), tf.int64)
    most_high, most_low = divmod(2**63 - 1, 10**_LOW_DIGITS)
    last = most_low + tf.cast(negative, tf.int64)
    good &= (high < most_high) | (tf.equal(high, most_high) & (low <= last))
    size = high * 10**_LOW_DIGITS + low
    return DenseTensor(tf.where(good, tf.where(negative, -size, size), 0), good)
