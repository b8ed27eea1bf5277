"""Elementary functions from + - * / and exact steps only: equal bits on every machine and in TensorFlow.

Exact steps are splitting off or attaching a power of two, floor, fmod, and the square root, which IEEE 754 rounds
correctly. A library's logarithm or sine differs from the next library's in the last place; these do not.
"""

from __future__ import annotations

import math

#: ln 2 in two parts: the first has 21 trailing zero bits, so that its product with an exponent is exact.
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
SQRT_HALF = 0.5**0.5
LOG_TERMS = 11

HALF_PI = math.pi / 2
#: Taylor's coefficients of (sin a / a - 1) / a**2 and (cos a - 1) / a**2 in powers of a**2, the highest first.
SINE = tuple((-1.0) ** i / math.factorial(2 * i + 1) for i in range(8, 0, -1))
COSINE = tuple((-1.0) ** i / math.factorial(2 * i) for i in range(9, 0, -1))
#: A smaller part of a period counts as none. Periods are between PERIOD_MIN and its reciprocal.
FRACTION_MIN = PERIOD_MIN = 2.0**-256


def log1p(x: float) -> float:
    """ln(1 + x). Within 2 units in the last place of the true value.

    1 + x is split as 2**k * m with m near 1, and ln m = 2 * atanh(s) with s = (m - 1) / (m + 1). What rounding 1 + x
    lost is added back.
    """
    if math.isnan(x) or x < -1.0:
        return math.nan
    if x == -1.0:
        return -math.inf
    if math.isinf(x) or abs(x) < 2.0**-54:
        return x
    if -0.29 < x < 0.41:
        return _log(x, 0, 0.0)
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u if u < 2.0**53 else 0.0
    m, k = _split(u)
    return _log(m - 1.0, k, lost)


def log(x: float) -> float:
    """ln x. Within 2 units in the last place of the true value."""
    if math.isnan(x) or x < 0.0:
        return math.nan
    if x == 0.0:
        return -math.inf
    if math.isinf(x):
        return x
    m, k = _split(x)
    return _log(m - 1.0, k, 0.0)


def _split(x: float) -> tuple[float, int]:
    """x as m * 2**k with m between the square roots of 1/2 and 2."""
    m, k = math.frexp(x)
    return (m * 2.0, k - 1) if m < SQRT_HALF else (m, k)


def _log(f: float, k: int, lost: float) -> float:
    """k * ln 2 + ln(1 + f) + lost."""
    s = f / (2.0 + f)
    z = s * s
    series = 0.0
    for i in range(LOG_TERMS, 0, -1):
        series = z * (series + 1.0 / (2 * i + 1))
    return k * LN2_HIGH + (2.0 * s + (2.0 * s * series + (lost + k * LN2_LOW)))


def sine_of_period(x: float, period: float, quarters: int) -> float:
    """The sine of 2 pi * (x / period + quarters / 4), within 2**-50 of the true value; NaN for what is not finite.

    The remainder of x is exact, so that a large x costs no accuracy.
    """
    if not math.isfinite(x):
        return math.nan
    fraction = math.fmod(x, period) / period
    if abs(fraction) < FRACTION_MIN:
        fraction = 0.0
    turned = 4.0 * fraction
    nearest = math.floor(turned + 0.5)
    a = (turned - nearest) * HALF_PI
    z = a * a
    quadrant = (nearest + quarters) % 4
    value = 1.0 + z * _horner(COSINE, z) if quadrant % 2 else a + a * (z * _horner(SINE, z))
    return 0.0 - value if quadrant >= 2 else value


def _horner(coefficients: tuple[float, ...], z: float) -> float:
    total = 0.0
    for coefficient in coefficients:
        total = total * z + coefficient
    return total
