"""Twins that bring numbers into a range."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from transforms.operators.ranges import whole_bound
from transforms.twins import floats
from transforms.twins.numbers import float_type
from transforms.twins.tensors import DenseTensor

Tensor = Any


def scale(number: DenseTensor, *, factor: float, offset: float) -> DenseTensor:
    """x * factor + offset."""
    x = floats.wide(number.values)
    return DenseTensor(floats.rounded(floats.add(floats.multiply(x, factor), offset), float_type(number.values)))


def min_max(number: DenseTensor, *, low: float, high: float, clip: bool) -> DenseTensor:
    """(x - low) / (high - low), held within [0, 1] if ``clip``."""
    share = floats.divide(floats.subtract(floats.wide(number.values), low), high - low)
    return DenseTensor(floats.rounded(_held(share, 0.0, 1.0) if clip else share, float_type(number.values)))


def standardize(number: DenseTensor, *, mean: float, standard_deviation: float) -> DenseTensor:
    """(x - mean) / standard_deviation, 0 for a deviation of 0."""
    x = floats.wide(number.values)
    if standard_deviation == 0.0:
        result = tf.where(floats.is_nan(x), x, tf.zeros([], tf.float64))
    else:
        result = floats.divide(floats.subtract(x, mean), standard_deviation)
    return DenseTensor(floats.rounded(result, float_type(number.values)))


def clip(number: DenseTensor, *, low: float, high: float) -> DenseTensor:
    """x kept within bounds."""
    values = number.values
    if values.dtype == tf.int64:
        return DenseTensor(tf.minimum(tf.maximum(values, whole_bound(low)), whole_bound(high)))
    return DenseTensor(floats.rounded(_held(floats.wide(values), low, high), values.dtype))


def _held(x: Tensor, low: float, high: float) -> Tensor:
    key, known = floats.order(x), ~floats.is_nan(x)
    held = tf.where((key > floats.order_of(high)) & known, floats.constant(high), x)
    return tf.where((key < floats.order_of(low)) & known, floats.constant(low), held)


def bucketize(number: DenseTensor, *, boundaries: tuple[float, ...]) -> DenseTensor:
    """The number of boundaries <= x; all of them for NaN."""
    x = floats.wide(number.values)
    key = tf.where(floats.is_nan(x), tf.int64.max, floats.order(x))
    edges = tf.constant([floats.order_of(boundary) for boundary in boundaries], tf.int64)
    return DenseTensor(tf.searchsorted(edges, key, side="right", out_type=tf.int64))


def modulo(number: DenseTensor, *, n: int) -> DenseTensor:
    """The remainder by n, rounded down."""
    return DenseTensor(tf.math.floormod(number.values, tf.constant(n, tf.int64)))
