"""Float64 arithmetic in TensorFlow that follows IEEE 754 to the last bit.

TensorFlow's operations differ in two ways. Its CPU kernels treat numbers below 2**-1022 (subnormals) as zero, as
arguments and as results: here they are scaled and rounded as bits, in a branch that runs only if a batch holds one. And
its graph optimiser rewrites sums and products as if they were exact, such as x / 3 into x * (1 / 3): here every operand
passes through an operation that is opaque to the optimiser. XLA still divides by constants in that way, so code that it
compiles may differ in the last bit.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Tensor = Any

_SIGN, _MANTISSA, _INFINITE, _BIAS = -(2**63), 2**52 - 1, 0x7FF << 52, 1023
#: A subnormal is a multiple of 2**-1074.
_STEP = -1074
#: An exponent by which two small numbers are raised before they are added, and below which they count as small.
_RAISE, _SMALL = 200, 2.0**-800
_SPLITTER = 2.0**27 + 1.0


def constant(value: float) -> Tensor:
    """One float64, created from numpy: TensorFlow's cache of plain numbers takes -0.0 for 0.0."""
    return tf.constant(np.array(value, np.float64))


def opaque(value: Tensor | float) -> Tensor:
    """The same float64 tensor, opaque to the optimiser."""
    tensor = _tensor(value)
    return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=tensor.shape)


def plain(compute: Callable[[Tensor, Tensor], Tensor], a: Tensor | float, b: Tensor | float) -> Tensor:
    """One of + - * / where neither an argument nor the result is subnormal."""
    return compute(opaque(a), opaque(b))


def bits_of(x: Tensor) -> Tensor:
    """The 64 bits of float64."""
    return tf.bitcast(x, tf.int64)


def from_bits(bits: Tensor) -> Tensor:
    """float64 of these bits."""
    return tf.bitcast(bits, tf.float64)


def magnitude(x: Tensor) -> Tensor:
    """The bits of |x|: whole numbers in the order of |x|."""
    return bits_of(x) & (2**63 - 1)


def is_nan(x: Tensor) -> Tensor:
    """Where x is NaN."""
    return magnitude(x) > _INFINITE


def is_negative(x: Tensor) -> Tensor:
    """Where x has a minus sign, as -0.0 has."""
    return bits_of(x) < 0


def order(x: Tensor) -> Tensor:
    """Whole numbers that compare as the floats do, -0.0 and 0.0 alike; NaN lies beyond both infinities."""
    return tf.where(is_negative(x), -magnitude(x), magnitude(x))


def order_of(x: float) -> int:
    """:func:`order` of a number that is known."""
    bits: int = struct.unpack("<q", struct.pack("<d", abs(x)))[0]
    return -bits if x < 0 else bits


def wide(values: Tensor) -> Tensor:
    """Any numbers as float64: a float32 exactly, an int64 as the nearest."""
    if values.dtype != tf.float32:
        return values if values.dtype == tf.float64 else tf.cast(values, tf.float64)
    bits = tf.cast(tf.bitcast(values, tf.int32), tf.int64)
    steps = bits & (2**31 - 1)
    small = bits_of(plain(operator.mul, tf.cast(steps, tf.float64), 2.0**-149)) | (bits & _SIGN)
    return tf.where(steps < 2**23, from_bits(small), tf.cast(values, tf.float64))


def with_one_nan(values: Tensor) -> Tensor:
    """The values as they are, of floats every NaN the same."""
    if not values.dtype.is_floating:
        return values
    return tf.where(tf.math.is_nan(values), tf.constant(np.array(np.nan, values.dtype.as_numpy_dtype)), values)


def rounded(x: Tensor, dtype: tf.DType) -> Tensor:
    """float64 as ``dtype``, rounded once; every NaN the same."""
    x = tf.where(is_nan(x), constant(float("nan")), x)
    if dtype == tf.float64:
        return x
    size = from_bits(tf.minimum(magnitude(x), order_of(2.0**-126)))
    steps = tf.cast(tf.round(plain(operator.mul, size, 2.0**149)), tf.int32)
    small = tf.bitcast(steps | tf.where(is_negative(x), tf.int32.min, 0), tf.float32)
    return tf.where(magnitude(x) < order_of(2.0**-126), small, tf.cast(x, tf.float32))


def unpacked(x: Tensor) -> tuple[Tensor, Tensor]:
    """|x| as m * 2**k: float64 m from 1 to below 2, and int64 k. x is finite and not zero."""
    exact = from_bits(tf.where(_is_subnormal(x), bits_of(tf.cast(magnitude(x), tf.float64)), magnitude(x)))
    k = _field(exact) - _BIAS + tf.where(_is_subnormal(x), tf.constant(_STEP, tf.int64), 0)
    return from_bits(bits_of(exact) & _MANTISSA | _BIAS << 52), k


def power_of_two(k: Tensor) -> Tensor:
    """2**k as float64, for int64 k from -1022 to 1023."""
    return from_bits(tf.bitwise.left_shift(k + _BIAS, tf.constant(52, tf.int64)))


def add(a: Tensor, b: Tensor | float) -> Tensor:
    """a + b."""
    b = _tensor(b)
    small = tf.maximum(magnitude(a), magnitude(b)) < order_of(_SMALL)
    at_risk = small & tf.not_equal(magnitude(a) | magnitude(b), 0)

    def careful() -> Tensor:
        # Where a sum is subnormal it is exact, so that scaling it back rounds nothing.
        return tf.where(small, _lowered(plain(operator.add, _raised(a), _raised(b))), plain(operator.add, a, b))

    return tf.cond(tf.reduce_any(at_risk), careful, lambda: plain(operator.add, a, b))


def subtract(a: Tensor, b: Tensor | float) -> Tensor:
    """a - b."""
    return add(a, from_bits(tf.bitwise.bitwise_xor(bits_of(_tensor(b)), _SIGN)))


def multiply(a: Tensor, b: Tensor | float) -> Tensor:
    """a * b."""
    b = _tensor(b)
    at_risk = _both_finite(a, b) & (_is_subnormal(a) | _is_subnormal(b) | (_field(a) + _field(b) < _BIAS + 2))

    def product(m: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        high = plain(operator.mul, m, n)
        return high, _lost_of_product(m, n, high)

    return _scaled(operator.mul, a, b, at_risk, product, operator.add)


def divide(a: Tensor, b: Tensor | float) -> Tensor:
    """a / b."""
    b = _tensor(b)
    at_risk = _both_finite(a, b) & (_is_subnormal(a) | _is_subnormal(b) | (_field(a) - _field(b) + _BIAS < 2))

    def quotient(m: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        high = plain(operator.truediv, m, n)
        back = plain(operator.mul, high, n)
        return high, plain(operator.sub, plain(operator.sub, m, back), _lost_of_product(high, n, back))

    return _scaled(operator.truediv, a, b, at_risk, quotient, operator.sub)


def _scaled(
    compute: Callable[[Tensor, Tensor], Tensor],
    a: Tensor,
    b: Tensor,
    at_risk: Tensor,
    split: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    exponents: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """``compute``; where it is at risk, on numbers from 1 to 2 by ``split`` (result, sign of what it lost), then scaled."""

    def direct() -> Tensor:
        return plain(compute, _as_normal(a), _as_normal(b))

    def careful() -> Tensor:
        (m, j), (n, k) = unpacked(a), unpacked(b)
        sign = tf.bitwise.bitwise_xor(bits_of(a), bits_of(b)) & _SIGN
        return tf.where(at_risk, from_bits(_packed(*split(m, n), exponents(j, k)) | sign), direct())

    return tf.cond(tf.reduce_any(at_risk), careful, direct)


def _packed(high: Tensor, lost: Tensor, k: Tensor) -> Tensor:
    """The bits of (high + lost) * 2**k, rounded to the nearest: ``high`` is the nearest float64 already, above zero."""
    field = _field(high) + k
    normal = bits_of(high) + tf.bitwise.left_shift(k, tf.constant(52, tf.int64))
    steps = plain(operator.mul, high, power_of_two(tf.clip_by_value(k - _STEP, -60, 60)))
    whole = tf.floor(steps)
    rest = plain(operator.sub, steps, whole)
    count = tf.cast(whole, tf.int64)
    up = (rest > 0.5) | (tf.equal(rest, 0.5) & ((lost > 0) | (tf.equal(lost, 0) & tf.equal(count & 1, 1))))
    subnormal = count + tf.cast(up, tf.int64)
    return tf.where(field > 2046, _INFINITE, tf.where(field < 1, subnormal, normal))


def _lost_of_product(a: Tensor, b: Tensor, product: Tensor) -> Tensor:
    """a * b - product, exactly, by Dekker's method; all three are between 1/4 and 4."""
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    lost = plain(operator.sub, plain(operator.mul, a1, b1), product)
    for left, right in ((a1, b2), (a2, b1), (a2, b2)):
        lost = plain(operator.add, lost, plain(operator.mul, left, right))
    return lost


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """x as the sum of two numbers of at most 26 bits."""
    spread = plain(operator.mul, x, _SPLITTER)
    high = plain(operator.sub, spread, plain(operator.sub, spread, x))
    return high, plain(operator.sub, x, high)


def _raised(x: Tensor) -> Tensor:
    """x * 2**_RAISE, for a small x."""
    steps = plain(operator.mul, tf.cast(magnitude(x), tf.float64), 2.0 ** (_STEP + _RAISE))
    bits = tf.where(_field(x) > 0, magnitude(x) + (_RAISE << 52), bits_of(steps))
    return from_bits(bits | (bits_of(x) & _SIGN))


def _lowered(x: Tensor) -> Tensor:
    """x / 2**_RAISE, where that is exact."""
    steps = tf.cast(plain(operator.mul, from_bits(magnitude(x)), 2.0 ** -(_STEP + _RAISE)), tf.int64)
    bits = tf.where(_field(x) > _RAISE, magnitude(x) - (_RAISE << 52), steps)
    return from_bits(bits | (bits_of(x) & _SIGN))


def _as_normal(x: Tensor) -> Tensor:
    """A subnormal as the least normal number of its sign, which gives the same in every special case."""
    return tf.where(_is_subnormal(x), from_bits(bits_of(x) & _SIGN | 1 << 52), x)


def _both_finite(a: Tensor, b: Tensor) -> Tensor:
    """Where both are numbers other than zero."""
    some, most = tf.minimum(magnitude(a), magnitude(b)), tf.maximum(magnitude(a), magnitude(b))
    return (some > 0) & (most < _INFINITE)


def _is_subnormal(x: Tensor) -> Tensor:
    return tf.equal(_field(x), 0) & (magnitude(x) > 0)


def _field(x: Tensor) -> Tensor:
    """The exponent as it is stored: 0 for subnormals and zero."""
    return tf.bitwise.right_shift(magnitude(x), tf.constant(52, tf.int64))


def _tensor(x: Tensor | float) -> Tensor:
    return constant(x) if isinstance(x, float) else x
