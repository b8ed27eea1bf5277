"""Twins of + - * /."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from transforms.twins import floats
from transforms.twins.numbers import common_type
from transforms.twins.tensors import DenseTensor

Tensor = Any
_Compute = Callable[[Tensor, Tensor], Tensor]


def add(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    """Left + right."""
    return _apply(operator.add, floats.add, left, right)


def subtract(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    """Left - right."""
    return _apply(operator.sub, floats.subtract, left, right)


def multiply(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    """Left * right."""
    return _apply(operator.mul, floats.multiply, left, right)


def divide(left: DenseTensor, right: DenseTensor) -> DenseTensor:
    """Left / right, in float."""
    dtype = common_type(left, right)
    quotient = floats.divide(floats.wide(left.values), floats.wide(right.values))
    return DenseTensor(floats.rounded(quotient, tf.float64 if dtype == tf.int64 else dtype))


def _apply(whole: _Compute, floating: _Compute, left: DenseTensor, right: DenseTensor) -> DenseTensor:
    dtype = common_type(left, right)
    if dtype == tf.int64:
        return DenseTensor(whole(left.values, right.values))
    return DenseTensor(floats.rounded(floating(floats.wide(left.values), floats.wide(right.values)), dtype))
