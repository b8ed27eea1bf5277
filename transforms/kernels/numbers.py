"""Kernels over one number or several. Floats are computed in float64, rounded once, and have one NaN."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers
from transforms.errors import DataError
from transforms.kernels.compiled import vectorised
from transforms.kernels.floats import bits_of
from transforms.kernels.spans import frozen


def absolute(column: Column) -> Column:
    """|x|; int64 wraps around."""
    return _of_one(np.abs, column)


def floor(column: Column) -> Column:
    """The greatest whole number not above x."""
    return _of_one(np.floor, column)


def ceil(column: Column) -> Column:
    """The least whole number not below x."""
    return _of_one(np.ceil, column)


def _of_one(compute: Callable[[Array], Array], column: Column) -> Column:
    values = numbers(column)
    if values.dtype == np.int64:
        return Numbers(np.abs(values)) if compute is np.abs else Numbers(values)
    return Numbers(rounded(compute(as_float64(values)), values.dtype))


def minimum(*columns: Column) -> Column:
    """The least of each row."""
    return _of_several(np.minimum, _lesser, columns)


def maximum(*columns: Column) -> Column:
    """The greatest of each row."""
    return _of_several(np.maximum, _greater, columns)


def _of_several(whole: Any, floating: Callable[[Array, Array], Array], columns: tuple[Column, ...]) -> Column:
    arrays = [numbers(column) for column in columns]
    dtype = np.result_type(*arrays)
    dtype = np.dtype(np.float64) if len({array.dtype for array in arrays}) > 1 else dtype
    if dtype == np.int64:
        return Numbers(reduce(whole, arrays))
    floats = [frozen(as_float64(array)) for array in arrays]
    if len(floats) == 1:
        return Numbers(rounded(floats[0].copy(), dtype))
    return Numbers(rounded(reduce(floating, floats), dtype))


@vectorised
def _lesser(a: Array, b: Array) -> Array:
    chosen = np.empty(len(a), np.float64)
    for i in range(len(a)):
        first = (a[i] != a[i]) | (a[i] < b[i]) | ((a[i] == b[i]) & (bits_of(a[i]) < 0))
        chosen[i] = a[i] if first else b[i]
    return chosen


@vectorised
def _greater(a: Array, b: Array) -> Array:
    chosen = np.empty(len(a), np.float64)
    for i in range(len(a)):
        first = (a[i] != a[i]) | (a[i] > b[i]) | ((a[i] == b[i]) & (bits_of(a[i]) >= 0))
        chosen[i] = a[i] if first else b[i]
    return chosen


def numbers(column: Column) -> Array:
    """The values of a dense column that is not text."""
    if not isinstance(column, Numbers):
        raise DataError("the argument of the kernel must be numbers", value=type(column).__name__)
    return column.values


def as_float64(values: Array) -> Array:
    """The nearest float64 of each value."""
    return values if values.dtype == np.float64 else values.astype(np.float64)


def rounded(values: Array, dtype: np.dtype[np.generic]) -> Array:
    """Freshly computed float64 values as ``dtype``, every NaN made the one quiet NaN. May change ``values``."""
    values[np.isnan(values)] = np.nan
    if values.dtype == dtype:
        return values
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def float_type(values: Array) -> np.dtype[np.generic]:
    """float32 stays, everything else becomes float64."""
    return values.dtype if values.dtype == np.float32 else np.dtype(np.float64)
