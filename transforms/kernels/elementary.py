"""Compiled forms of :mod:`transforms.operators.elementary`, step for step."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from transforms.columns import Array, Column, Numbers
from transforms.kernels.compiled import compiled
from transforms.kernels.numeric import as_float64, float_type, numbers, rounded
from transforms.kernels.spans import frozen
from transforms.operators.elementary import (
    COSINE,
    FRACTION_MIN,
    HALF_PI,
    LN2_HIGH,
    LN2_LOW,
    LOG_TERMS,
    SINE,
    SQRT_HALF,
)

_RECIPROCALS = tuple(1.0 / (2 * i + 1) for i in range(LOG_TERMS, 0, -1))


def log1p(column: Column) -> Column:
    """ln(1 + x)."""
    return _each(_log1p, column)


def log(column: Column) -> Column:
    """ln x."""
    return _each(_log, column)


def sign_log(column: Column) -> Column:
    """ln(1 + |x|) with the sign of x."""
    return _each(_sign_log, column)


def sqrt(column: Column) -> Column:
    """The square root."""
    with np.errstate(all="ignore"):
        return _each(np.sqrt, column)


def sin_periodic(column: Column, *, period: float) -> Column:
    """sin(2 pi x / period)."""
    return _sine(column, period, 0)


def cos_periodic(column: Column, *, period: float) -> Column:
    """cos(2 pi x / period)."""
    return _sine(column, period, 1)


def _sine(column: Column, period: float, quarters: int) -> Column:
    with np.errstate(invalid="ignore"):
        return _each(lambda values: _sines(np.fmod(values, period), period, quarters), column)


def _each(compute: Callable[[Array], Array], column: Column) -> Column:
    values = numbers(column)
    return Numbers(rounded(compute(frozen(as_float64(values))), float_type(values)))


@compiled
def _log1p(values: Array) -> Array:
    logs = np.empty(len(values), np.float64)
    for i in range(len(values)):
        logs[i] = _log1p_one(values[i])
    return logs


@compiled
def _sign_log(values: Array) -> Array:
    logs = np.empty(len(values), np.float64)
    for i in range(len(values)):
        logs[i] = math.copysign(_log1p_one(abs(values[i])), values[i])
    return logs


@compiled
def _log(values: Array) -> Array:
    logs = np.empty(len(values), np.float64)
    for i in range(len(values)):
        logs[i] = _log_one(values[i])
    return logs


@compiled
def _log1p_one(x: float) -> float:
    if x != x or x < -1.0:
        return np.nan
    if x == -1.0:
        return -np.inf
    if x == np.inf or abs(x) < 2.0**-54:
        return x
    if -0.29 < x and x < 0.41:  # noqa: SIM300
        return _log_near_one(x, 0, 0.0)
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u if u < 2.0**53 else 0.0
    m, k = math.frexp(u)
    if m < SQRT_HALF:
        m, k = m * 2.0, k - 1
    return _log_near_one(m - 1.0, k, lost)


@compiled
def _log_one(x: float) -> float:
    if x != x or x < 0.0:
        return np.nan
    if x == 0.0:
        return -np.inf
    if x == np.inf:
        return x
    m, k = math.frexp(x)
    if m < SQRT_HALF:
        m, k = m * 2.0, k - 1
    return _log_near_one(m - 1.0, k, 0.0)


@compiled
def _log_near_one(f: float, k: int, lost: float) -> float:
    s = f / (2.0 + f)
    z = s * s
    series = 0.0
    for reciprocal in _RECIPROCALS:
        series = z * (series + reciprocal)
    return k * LN2_HIGH + (2.0 * s + (2.0 * s * series + (lost + k * LN2_LOW)))


@compiled
def _sines(remainders: Array, period: float, quarters: int) -> Array:
    sines = np.empty(len(remainders), np.float64)
    for i in range(len(remainders)):
        sines[i] = _sine_of_period(remainders[i], period, quarters)
    return sines


@compiled
def _sine_of_period(remainder: float, period: float, quarters: int) -> float:
    if remainder != remainder:
        return np.nan
    fraction = remainder / period
    if abs(fraction) < FRACTION_MIN:
        fraction = 0.0
    turned = 4.0 * fraction
    nearest = math.floor(turned + 0.5)
    a = (turned - nearest) * HALF_PI
    z = a * a
    quadrant = (np.int64(nearest) + quarters) % 4
    value = 0.0
    if quadrant % 2:
        for coefficient in COSINE:
            value = value * z + coefficient
        value = 1.0 + z * value
    else:
        for coefficient in SINE:
            value = value * z + coefficient
        value = a + a * (z * value)
    return 0.0 - value if quadrant >= 2 else value
