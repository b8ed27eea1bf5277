"""Twins that choose between columns. They see nulls and say which of their results are null."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from transforms.twins import floats
from transforms.twins.numbers import common_type
from transforms.twins.tensors import DenseTensor

Tensor = Any


def if_else(cond: DenseTensor, a: DenseTensor, b: DenseTensor) -> DenseTensor:
    """The value of ``a`` where cond is true, ``b`` where false; null where cond is null."""
    chosen = _choose(cond.values, a, b)
    return DenseTensor(chosen.values, _valid(cond) & _valid(chosen))


def coalesce(*columns: DenseTensor) -> DenseTensor:
    """The first valid value of each row."""
    result = columns[-1]
    for column in reversed(columns[:-1]):
        result = _choose(_valid(column), column, result)
    return result


def _choose(taken: Tensor, a: DenseTensor, b: DenseTensor) -> DenseTensor:
    left, right = a.values, b.values
    if left.dtype != common_type(a, b) or right.dtype != common_type(a, b):
        left, right = floats.wide(left), floats.wide(right)
    return DenseTensor(tf.where(taken, left, right), tf.where(taken, _valid(a), _valid(b)))


def _valid(column: DenseTensor) -> Tensor:
    return tf.ones(tf.shape(column.values), tf.bool) if column.valid is None else column.valid
