"""Twins over one number or several, in float64 and rounded once. See :mod:`transforms.operators.elementary`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import tensorflow as tf

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
from transforms.twins import floats
from transforms.twins.floats import plain
from transforms.twins.tensors import DenseTensor

Tensor = Any

_INF, _NAN = float("inf"), float("nan")


def float_type(values: Tensor) -> tf.DType:
    """float32 stays, everything else becomes float64."""
    return tf.float32 if values.dtype == tf.float32 else tf.float64


def common_type(*columns: DenseTensor) -> tf.DType:
    """Equal types stay; numbers of different types meet in float64."""
    types = {column.values.dtype for column in columns}
    return types.pop() if len(types) == 1 else tf.float64


def _each(compute: Callable[[Tensor], Tensor], number: DenseTensor) -> DenseTensor:
    return DenseTensor(floats.rounded(compute(floats.wide(number.values)), float_type(number.values)))


def _where(condition: Tensor, then: float | Tensor, otherwise: Tensor) -> Tensor:
    return tf.where(condition, floats.constant(then) if isinstance(then, float) else then, otherwise)


def log1p(number: DenseTensor) -> DenseTensor:
    """ln(1 + x)."""
    return _each(_log1p, number)


def sign_log(number: DenseTensor) -> DenseTensor:
    """ln(1 + |x|) with the sign of x."""

    def compute(x: Tensor) -> Tensor:
        size = _log1p(floats.from_bits(floats.magnitude(x)))
        return floats.from_bits(floats.magnitude(size) | (floats.bits_of(x) & -(2**63)))

    return _each(compute, number)


def log(number: DenseTensor) -> DenseTensor:
    """ln x."""

    def compute(x: Tensor) -> Tensor:
        m, k = _split(x)
        result = _log_near_one(plain(operator.sub, m, 1.0), k, 0.0)
        result = _where(tf.equal(floats.magnitude(x), 0), -_INF, _where(floats.order(x) < 0, _NAN, result))
        return tf.where(tf.equal(x, _INF) | floats.is_nan(x), x, result)

    return _each(compute, number)


def _log1p(x: Tensor) -> Tensor:
    u = plain(operator.add, 1.0, x)
    m, k = _split(u)
    lost = plain(operator.truediv, plain(operator.sub, x, plain(operator.sub, u, 1.0)), u)
    lost = tf.where(u < 2.0**53, lost, tf.zeros([], tf.float64))
    near = (x > -0.29) & (x < 0.41)
    zero, one = tf.zeros([], tf.float64), tf.zeros([], tf.int64)
    f = tf.where(near, x, plain(operator.sub, m, 1.0))
    result = _log_near_one(f, tf.where(near, one, k), tf.where(near, zero, lost))
    result = _where(tf.equal(x, -1.0), -_INF, _where(x < -1.0, _NAN, result))
    itself = (floats.magnitude(x) < floats.order_of(2.0**-54)) | tf.equal(x, _INF) | floats.is_nan(x)
    return tf.where(itself, x, result)


def _split(x: Tensor) -> tuple[Tensor, Tensor]:
    """x as m * 2**k with m between the square roots of 1/2 and 2."""
    m, k = floats.unpacked(x)
    half = plain(operator.mul, m, 0.5)
    doubled = half < SQRT_HALF
    return tf.where(doubled, m, half), tf.where(doubled, k, k + 1)


def _log_near_one(f: Tensor, k: Tensor, lost: Tensor | float) -> Tensor:
    k = tf.cast(k, tf.float64)
    s = plain(operator.truediv, f, plain(operator.add, 2.0, f))
    z = plain(operator.mul, s, s)
    series = tf.zeros_like(z)
    for i in range(LOG_TERMS, 0, -1):
        series = plain(operator.mul, z, plain(operator.add, series, 1.0 / (2 * i + 1)))
    twice = plain(operator.mul, 2.0, s)
    low = plain(operator.add, lost, plain(operator.mul, k, LN2_LOW))
    tail = plain(operator.add, twice, plain(operator.add, plain(operator.mul, twice, series), low))
    return plain(operator.add, plain(operator.mul, k, LN2_HIGH), tail)


def sqrt(number: DenseTensor) -> DenseTensor:
    """The square root: of m or 2 m for x = m * 2**k, so that no subnormal is met."""

    def compute(x: Tensor) -> Tensor:
        m, k = floats.unpacked(x)
        odd = k & 1
        root = tf.sqrt(tf.where(tf.equal(odd, 1), plain(operator.mul, m, 2.0), m))
        exponent = tf.bitwise.right_shift(k - odd, tf.constant(1, tf.int64))
        result = plain(operator.mul, root, floats.power_of_two(tf.clip_by_value(exponent, -600, 600)))
        result = _where(floats.order(x) < 0, _NAN, result)
        return tf.where(tf.equal(floats.magnitude(x), 0) | tf.equal(x, _INF) | floats.is_nan(x), x, result)

    return _each(compute, number)


def sin_periodic(number: DenseTensor, *, period: float) -> DenseTensor:
    """sin(2 pi x / period)."""
    return _each(lambda x: _sine(x, period, 0), number)


def cos_periodic(number: DenseTensor, *, period: float) -> DenseTensor:
    """cos(2 pi x / period)."""
    return _each(lambda x: _sine(x, period, 1), number)


def _sine(x: Tensor, period: float, quarters: int) -> Tensor:
    fraction = plain(operator.truediv, plain(tf.truncatemod, x, period), period)
    fraction = _where(floats.magnitude(fraction) < floats.order_of(FRACTION_MIN), 0.0, fraction)
    turned = plain(operator.mul, 4.0, fraction)
    nearest = tf.floor(plain(operator.add, turned, 0.5))
    a = plain(operator.mul, plain(operator.sub, turned, nearest), HALF_PI)
    z = plain(operator.mul, a, a)
    quadrant = tf.cast(nearest, tf.int64) + quarters & 3
    sine = plain(operator.add, a, plain(operator.mul, a, plain(operator.mul, z, _horner(SINE, z))))
    cosine = plain(operator.add, 1.0, plain(operator.mul, z, _horner(COSINE, z)))
    value = tf.where(tf.equal(quadrant & 1, 1), cosine, sine)
    value = tf.where(quadrant >= 2, plain(operator.sub, 0.0, value), value)
    return _where(floats.magnitude(x) >= floats.order_of(_INF), _NAN, value)


def _horner(coefficients: tuple[float, ...], z: Tensor) -> Tensor:
    total = tf.zeros_like(z)
    for coefficient in coefficients:
        total = plain(operator.add, plain(operator.mul, total, z), coefficient)
    return total


def absolute(number: DenseTensor) -> DenseTensor:
    """|x|; int64 wraps around."""
    values = number.values
    if values.dtype == tf.int64:
        return DenseTensor(tf.abs(values))
    return DenseTensor(floats.rounded(floats.from_bits(floats.magnitude(floats.wide(values))), values.dtype))


def floor(number: DenseTensor) -> DenseTensor:
    """The greatest whole number not above x."""
    return _whole(number, tf.floor, lambda x: floats.order(x) < 0, -1.0)


def ceil(number: DenseTensor) -> DenseTensor:
    """The least whole number not below x."""
    return _whole(number, tf.math.ceil, lambda x: floats.order(x) > 0, 1.0)


def _whole(
    number: DenseTensor, compute: Callable[[Tensor], Tensor], steps: Callable[[Tensor], Tensor], step: float
) -> DenseTensor:
    """Between -1 and 1 the answer is a ``step`` or a zero of the sign of x, read off the bits."""
    values = number.values
    if values.dtype == tf.int64:
        return number
    x = floats.wide(values)
    small = _where(steps(x), step, floats.from_bits(floats.bits_of(x) & -(2**63)))
    return DenseTensor(
        floats.rounded(tf.where(floats.magnitude(x) < floats.order_of(1.0), small, compute(x)), values.dtype)
    )


def minimum(*numbers: DenseTensor) -> DenseTensor:
    """The least of each row."""
    return _of_several(tf.minimum, numbers)


def maximum(*numbers: DenseTensor) -> DenseTensor:
    """The greatest of each row."""
    return _of_several(tf.maximum, numbers)


def _of_several(pick: Callable[[Tensor, Tensor], Tensor], numbers: tuple[DenseTensor, ...]) -> DenseTensor:
    dtype = common_type(*numbers)
    if dtype == tf.int64:
        return DenseTensor(reduce(pick, [number.values for number in numbers]))
    values = [floats.wide(number.values) for number in numbers]
    key = reduce(pick, [_strict_order(x) for x in values])
    chosen = floats.from_bits(tf.where(key < 0, tf.bitwise.bitwise_xor(-1 - key, -(2**63)), key))
    return DenseTensor(
        floats.rounded(_where(reduce(tf.logical_or, [floats.is_nan(x) for x in values]), _NAN, chosen), dtype)
    )


def _strict_order(x: Tensor) -> Tensor:
    """As :func:`floats.order`, with -0.0 before 0.0."""
    return tf.where(floats.is_negative(x), -1 - floats.magnitude(x), floats.magnitude(x))
