"""Kernels of + - * /: numpy's own loops, which release the GIL and round as IEEE 754 says on every machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers
from transforms.kernels.numbers import as_float64, numbers, rounded


def add(left: Column, right: Column) -> Column:
    """Left + right."""
    return _apply(np.add, left, right)


def subtract(left: Column, right: Column) -> Column:
    """Left - right."""
    return _apply(np.subtract, left, right)


def multiply(left: Column, right: Column) -> Column:
    """Left * right."""
    return _apply(np.multiply, left, right)


def divide(left: Column, right: Column) -> Column:
    """Left / right, in float."""
    a, b = numbers(left), numbers(right)
    if a.dtype == np.int64 and b.dtype == np.int64:
        return _apply(np.divide, Numbers(as_float64(a)), Numbers(as_float64(b)))
    return _apply(np.divide, left, right)


def _apply(compute: Callable[[Array, Array], Array], left: Column, right: Column) -> Column:
    a, b = numbers(left), numbers(right)
    dtype = np.result_type(a.dtype, b.dtype)
    with np.errstate(all="ignore"):
        if dtype == np.int64:
            return Numbers(compute(a, b))
        return Numbers(rounded(compute(as_float64(a), as_float64(b)), dtype))
