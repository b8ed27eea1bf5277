"""Twins of three-valued logic, and of membership. Beneath a null lies False."""

from __future__ import annotations

from functools import reduce

import tensorflow as tf

from transforms.twins.tensors import DenseTensor


def and_(*conditions: DenseTensor) -> DenseTensor:
    """Whether all hold; known as soon as one is false."""
    holds = reduce(tf.logical_and, [condition.values for condition in conditions])
    refuted = [_known(condition) & ~condition.values for condition in conditions]
    return DenseTensor(holds, reduce(tf.logical_or, refuted, _all_known(conditions)))


def or_(*conditions: DenseTensor) -> DenseTensor:
    """Whether one holds; known as soon as one is true."""
    holds = reduce(tf.logical_or, [condition.values for condition in conditions])
    return DenseTensor(holds, holds | _all_known(conditions))


def not_(condition: DenseTensor) -> DenseTensor:
    """Whether it does not hold."""
    return DenseTensor(~condition.values)


def is_in(column: DenseTensor, *, whole: tuple[int, ...], texts: tuple[str, ...]) -> DenseTensor:
    """Whether each value is one of those given."""
    values = column.values
    known = tf.constant(texts, tf.string) if values.dtype == tf.string else tf.constant(whole, tf.int64)
    return DenseTensor(tf.reduce_any(tf.equal(values[:, tf.newaxis], known[tf.newaxis, :]), axis=1))


def _known(condition: DenseTensor) -> tf.Tensor:
    return tf.ones_like(condition.values) if condition.valid is None else condition.valid


def _all_known(conditions: tuple[DenseTensor, ...]) -> tf.Tensor:
    return reduce(tf.logical_and, [_known(condition) for condition in conditions])
