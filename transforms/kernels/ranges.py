"""Kernels that bring numbers into a range."""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers
from transforms.kernels.compiled import vectorised
from transforms.kernels.numbers import as_float64, float_type, numbers, rounded
from transforms.kernels.spans import frozen
from transforms.operators.ranges import whole_bound

#: Up to this many boundaries, comparing with all beats a binary search.
_FEW_EDGES = 32


def scale(column: Column, *, factor: float, offset: float) -> Column:
    """x * factor + offset in two rounded steps."""
    values = numbers(column)
    with np.errstate(all="ignore"):
        scaled = as_float64(values) * factor
        scaled += offset
    return Numbers(rounded(scaled, float_type(values)))


def min_max(column: Column, *, low: float, high: float, clip: bool) -> Column:
    """(x - low) / (high - low), held within [0, 1] if ``clip``."""
    values = numbers(column)
    with np.errstate(all="ignore"):
        shares = as_float64(values) - low
        shares /= high - low
        if clip:
            shares = _held(frozen(shares), 0.0, 1.0)
    return Numbers(rounded(shares, float_type(values)))


def standardize(column: Column, *, mean: float, standard_deviation: float) -> Column:
    """(x - mean) / standard_deviation, 0 for a deviation of 0."""
    values = numbers(column)
    wide = as_float64(values)
    if standard_deviation == 0.0:
        return Numbers(rounded(np.where(np.isnan(wide), np.nan, 0.0), float_type(values)))
    with np.errstate(all="ignore"):
        distances = wide - mean
        distances /= standard_deviation
    return Numbers(rounded(distances, float_type(values)))


def clip(column: Column, *, low: float, high: float) -> Column:
    """x kept within bounds."""
    values = numbers(column)
    if values.dtype == np.int64:
        return Numbers(np.clip(values, whole_bound(low), whole_bound(high)))
    return Numbers(rounded(_held(frozen(as_float64(values)), low, high), values.dtype))


@vectorised
def _held(values: Array, low: float, high: float) -> Array:
    held = np.empty(len(values), np.float64)
    for i in range(len(values)):
        above = high if values[i] > high else values[i]
        held[i] = low if values[i] < low else above
    return held


def bucketize(column: Column, *, boundaries: tuple[float, ...]) -> Column:
    """The number of boundaries <= x; all of them for NaN, which sorts last."""
    edges, values = np.array(boundaries, np.float64), as_float64(numbers(column))
    if len(edges) <= _FEW_EDGES:
        return Numbers(_passed(frozen(values), frozen(edges)))
    return Numbers(np.searchsorted(edges, values, side="right").astype(np.int64, copy=False))


@vectorised
def _passed(values: Array, edges: Array) -> Array:
    passed = np.zeros(len(values), np.int64)
    for edge in edges:
        for i in range(len(values)):
            passed[i] += not values[i] < edge  # which NaN is not
    return passed


def modulo(column: Column, *, n: int) -> Column:
    """The remainder by n, rounded down."""
    return Numbers(np.mod(numbers(column), np.int64(n)))
