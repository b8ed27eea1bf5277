"""Kernels that bring numbers into a range."""

from __future__ import annotations

import numpy as np

from transforms.columns import Column, Numbers
from transforms.kernels.numeric import as_float64, float_type, numbers, rounded
from transforms.operators.ranges import whole_bound


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
            shares = np.where(shares < 0.0, 0.0, np.where(shares > 1.0, 1.0, shares))
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
    wide = as_float64(values)
    with np.errstate(all="ignore"):
        clipped = np.where(wide < low, low, np.where(wide > high, high, wide))
    return Numbers(rounded(clipped, values.dtype))


def bucketize(column: Column, *, boundaries: tuple[float, ...]) -> Column:
    """How many boundaries are <= x; all of them for NaN, which sorts last."""
    edges = np.array(boundaries, np.float64)
    return Numbers(np.searchsorted(edges, as_float64(numbers(column)), side="right").astype(np.int64))


def modulo(column: Column, *, n: int) -> Column:
    """The remainder by n, rounded down."""
    return Numbers(np.mod(numbers(column), np.int64(n)))
