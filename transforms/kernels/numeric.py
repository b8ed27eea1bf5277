"""Kernels over one number. Floats are computed in float64, rounded once, and have one NaN."""

from __future__ import annotations

import math

import numpy as np

from transforms.columns import Array, Column, Numbers
from transforms.errors import DataError
from transforms.kernels.compiled import compiled
from transforms.kernels.spans import frozen
from transforms.operators.numeric import LN2_HIGH, LN2_LOW, LOG_TERMS, SQRT_HALF, whole_bound

_RECIPROCALS = tuple(1.0 / (2 * i + 1) for i in range(LOG_TERMS, 0, -1))


def log1p(column: Column) -> Column:
    """ln(1 + x), the compiled twin of :func:`transforms.operators.numeric.log1p`."""
    values = numbers(column)
    return Numbers(rounded(_log1p(frozen(as_float64(values))), _float_type(values)))


def scale(column: Column, *, factor: float, offset: float) -> Column:
    """x * factor + offset in two rounded steps."""
    values = numbers(column)
    with np.errstate(all="ignore"):
        scaled = as_float64(values) * factor + offset
    return Numbers(rounded(scaled, _float_type(values)))


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


def numbers(column: Column) -> Array:
    """The values of a dense column that is not text."""
    if not isinstance(column, Numbers):
        raise DataError("a kernel over numbers was given something else", value=type(column).__name__)
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


def _float_type(values: Array) -> np.dtype[np.generic]:
    return values.dtype if values.dtype == np.float32 else np.dtype(np.float64)


@compiled
def _log1p(values: Array) -> Array:
    logs = np.empty(len(values), np.float64)
    for i in range(len(values)):
        logs[i] = _log1p_one(values[i])
    return logs


@compiled
def _log1p_one(x: float) -> float:
    if x != x or x < -1.0:
        return np.nan
    if x == -1.0:
        return -np.inf
    if x == np.inf or abs(x) < 2.0**-54:
        return x
    k, lost, f = 0, 0.0, x
    if not (-0.29 < x and x < 0.41):  # noqa: SIM300
        u = 1.0 + x
        lost = (x - (u - 1.0)) / u if u < 2.0**53 else 0.0
        m, k = math.frexp(u)
        if m < SQRT_HALF:
            m, k = m * 2.0, k - 1
        f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = 0.0
    for reciprocal in _RECIPROCALS:
        series = z * (series + reciprocal)
    return k * LN2_HIGH + (2.0 * s + (2.0 * s * series + (lost + k * LN2_LOW)))
