"""Compiled forms of :mod:`transforms.operators.elementary`, step for step."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers
from transforms.kernels.compiled import vectorised
from transforms.kernels.floats import HALF_FIELD, MANTISSA, bits_of, from_bits
from transforms.kernels.numbers import as_float64, float_type, numbers, rounded
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

_NEAR_PERIODS = 2.0**26
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
        return _each(lambda values: _sines(_remainders(values, period), period, float(quarters)), column)


def _each(compute: Callable[[Array], Array], column: Column) -> Column:
    values = numbers(column)
    return Numbers(rounded(compute(frozen(as_float64(values))), float_type(values)))


@vectorised
def _log1p(values: Array) -> Array:
    logs = np.empty(len(values), np.float64)
    for i in range(len(values)):
        logs[i] = _log1p_one(values[i])
    return logs


@vectorised
def _sign_log(values: Array) -> Array:
    logs = np.empty(len(values), np.float64)
    for i in range(len(values)):
        logs[i] = math.copysign(_log1p_one(abs(values[i])), values[i])
    return logs


@vectorised
def _log(values: Array) -> Array:
    logs = np.empty(len(values), np.float64)
    for i in range(len(values)):
        logs[i] = _log_one(values[i])
    return logs


@vectorised
def _log1p_one(x: float) -> float:
    near = (x > -0.29) & (x < 0.41)
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u if u < 2.0**53 else 0.0
    m, k = _split(u)
    log = _log_near_one(x if near else m - 1.0, 0.0 if near else k, 0.0 if near else lost)
    log = x if (abs(x) < 2.0**-54) | (x == np.inf) else log
    log = -np.inf if x == -1.0 else log
    return log if x >= -1.0 else np.nan


@vectorised
def _log_one(x: float) -> float:
    subnormal = x < 2.0**-1022
    m, k = _split(x * 2.0**54 if subnormal else x)
    log = _log_near_one(m - 1.0, k - 54.0 if subnormal else k, 0.0)
    log = x if x == np.inf else log
    log = -np.inf if x == 0.0 else log
    return log if x >= 0.0 else np.nan


@vectorised
def _split(x: float) -> tuple[float, float]:
    """x as m * 2**k with m between the square roots of 1/2 and 2."""
    bits = bits_of(x)
    m, k = from_bits(bits & MANTISSA | HALF_FIELD << 52), (bits >> 52) - HALF_FIELD
    low = m < SQRT_HALF
    return m * 2.0 if low else m, float(k - 1 if low else k)


@vectorised
def _log_near_one(f: float, k: float, lost: float) -> float:
    s = f / (2.0 + f)
    z = s * s
    series = 0.0
    for reciprocal in _RECIPROCALS:
        series = z * (series + reciprocal)
    return k * LN2_HIGH + (2.0 * s + (2.0 * s * series + (lost + k * LN2_LOW)))


def _remainders(values: Array, period: float) -> Array:
    """fmod: short of 2**26 periods by steps that are exact, which is much faster."""
    remainders: Array = _near_remainders(values, period, *_halves(period))
    far = np.abs(values) >= period * _NEAR_PERIODS
    if far.any():
        remainders[far] = np.fmod(values[far], period)
    return remainders


def _halves(x: float) -> tuple[float, float]:
    """x as the sum of two floats of at most 26 bits, so that their products with a number below 2**26 are exact."""
    spread = x * (2.0**27 + 1.0)
    high = spread - (spread - x)
    return high, x - high


@vectorised
def _near_remainders(values: Array, period: float, high: float, low: float) -> Array:
    remainders = np.empty(len(values), np.float64)
    for i in range(len(values)):
        size = abs(values[i])
        times = np.floor(size / period)
        rest = (size - times * high) - times * low
        rest = rest + period if rest < 0.0 else rest  # the quotient was rounded up to the next whole number
        remainders[i] = math.copysign(rest, values[i])
    return remainders


@vectorised
def _sines(remainders: Array, period: float, quarters: float) -> Array:
    sines = np.empty(len(remainders), np.float64)
    for i in range(len(remainders)):
        sines[i] = _sine_of_remainder(remainders[i], period, quarters)
    return sines


@vectorised
def _sine_of_remainder(remainder: float, period: float, quarters: float) -> float:
    fraction = remainder / period
    fraction = 0.0 if abs(fraction) < FRACTION_MIN else fraction
    turned = 4.0 * fraction
    nearest = np.floor(turned + 0.5)
    a = (turned - nearest) * HALF_PI
    z = a * a
    sine, cosine = 0.0, 0.0
    for coefficient in SINE:
        sine = sine * z + coefficient
    for coefficient in COSINE:
        cosine = cosine * z + coefficient
    quadrant = nearest + quarters
    quadrant -= 4.0 * np.floor(quadrant * 0.25)
    odd = (quadrant == 1.0) | (quadrant == 3.0)
    value: float = 1.0 + z * cosine if odd else a + a * (z * sine)
    return 0.0 - value if quadrant >= 2.0 else value
