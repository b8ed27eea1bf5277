"""Kernels of the comparisons: numpy for numbers, byte order for text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, Strings
from transforms.kernels.buffers import spans
from transforms.kernels.compiled import compiled
from transforms.kernels.numbers import as_float64, numbers
from transforms.kernels.spans import compare_after_prefix, prefix


def equal(left: Column, right: Column) -> Column:
    """Left == right."""
    return _apply(np.equal, left, right)


def not_equal(left: Column, right: Column) -> Column:
    """Left != right."""
    return _apply(np.not_equal, left, right)


def less(left: Column, right: Column) -> Column:
    """Left < right."""
    return _apply(np.less, left, right)


def less_equal(left: Column, right: Column) -> Column:
    """Left <= right."""
    return _apply(np.less_equal, left, right)


def greater(left: Column, right: Column) -> Column:
    """Left > right."""
    return _apply(np.greater, left, right)


def greater_equal(left: Column, right: Column) -> Column:
    """Left >= right."""
    return _apply(np.greater_equal, left, right)


def _apply(test: Callable[[Any, Any], Any], left: Column, right: Column) -> Column:
    if isinstance(left, Strings) and isinstance(right, Strings):
        order: Array = _orders(*spans(left), *spans(right))
        return Numbers(test(order, np.int8(0)))
    a, b = numbers(left), numbers(right)
    if a.dtype != b.dtype:
        a, b = as_float64(a), as_float64(b)
    return Numbers(test(a, b))


@compiled
def _orders(
    data_a: Array, starts_a: Array, ends_a: Array, data_b: Array, starts_b: Array, ends_b: Array
) -> Array:  # fmt: skip
    orders = np.empty(len(starts_a), np.int8)
    for i in range(len(starts_a)):
        key_a, key_b = prefix(data_a, starts_a[i], ends_a[i]), prefix(data_b, starts_b[i], ends_b[i])
        if key_a == key_b:
            orders[i] = compare_after_prefix(data_a, starts_a[i], ends_a[i], data_b, starts_b[i], ends_b[i])
        else:
            orders[i] = -1 if key_a < key_b else 1
    return orders
