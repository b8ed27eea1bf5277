"""Twins of the comparisons: of floats by their bits, of text by its code points, whose order is that of the bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from transforms.twins import floats
from transforms.twins.tensors import DenseTensor

Tensor = Any


def equal(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    """Left == right."""
    return _same(left, right)


def not_equal(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    """Left != right."""
    return DenseTensor(~_same(left, right).values)


def less(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    """Left < right."""
    return _apply(tf.less, left, right)


def less_equal(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    """Left <= right."""
    return _apply(tf.less_equal, left, right)


def greater(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    """Left > right."""
    return _apply(tf.greater, left, right)


def greater_equal(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    """Left >= right."""
    return _apply(tf.greater_equal, left, right)


def _same(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    if left.values.dtype == tf.string:
        return DenseTensor(tf.equal(left.values, right.values))
    return _apply(tf.equal, left, right)


def _apply(test: Callable[[Tensor, Tensor], Tensor], left: DenseTensor, right: DenseTensor) -> DenseTensor:
    a, b = left.values, right.values
    if a.dtype == tf.string:
        return DenseTensor(test(text_order(a, b), tf.zeros([], tf.int64)))
    if a.dtype == b.dtype and not a.dtype.is_floating:
        return DenseTensor(test(tf.cast(a, tf.int64), tf.cast(b, tf.int64)))
    a, b = floats.wide(a), floats.wide(b)
    known = ~(floats.is_nan(a) | floats.is_nan(b))
    return DenseTensor(test(floats.order(a), floats.order(b)) & known)


def text_order(a: Tensor, b: Tensor) -> Tensor:
    """Below, at or above zero where a comes before b, is b, or comes after it.

    The first place where both have a character and these differ decides; without one, the lengths do.
    """
    left, right = tf.strings.unicode_decode(a, "UTF-8"), tf.strings.unicode_decode(b, "UTF-8")
    lengths = left.row_lengths() - right.row_lengths()
    places = tf.ragged.range(tf.minimum(left.row_lengths(), right.row_lengths()))
    rows = places.value_rowids()
    here = tf.gather(left.values, tf.gather(left.row_starts(), rows) + places.values)
    there = tf.gather(right.values, tf.gather(right.row_starts(), rows) + places.values)
    keys = tf.where(tf.equal(here, there), tf.int64.max, 2 * places.values + tf.cast(here > there, tf.int64))
    first = tf.math.unsorted_segment_min(keys, rows, tf.shape(a, tf.int64)[0])
    return tf.where(tf.equal(first, tf.int64.max), lengths, 2 * (first & 1) - 1)
