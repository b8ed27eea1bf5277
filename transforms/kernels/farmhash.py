"""FarmHash Fingerprint64, compiled: bit-equal to :mod:`transforms.operators.farmhash`, which explains it.

Every constant is an unsigned 64-bit number: numba would turn a mix of signed and unsigned into float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import uncounted
from transforms.kernels.spans import load32, load64

_K0, _K1, _K2 = np.uint64(0xC3A5C85C97CB3127), np.uint64(0xB492B66FBE98F273), np.uint64(0x9AE16A3B2F90404F)
_CAT = np.uint64(0xC6A4A7935BD1E995)
_SEED = np.uint64(81)
_SEED_Y = np.uint64((81 * 0xB492B66FBE98F273 + 113) % 2**64)
_113 = np.uint64(113)
_9 = np.uint64(9)
_1 = np.uint64(1)
_WORD = np.uint64(64)


@uncounted
def _rotate(value: Any, shift: Any) -> Any:
    amount = np.uint64(shift)
    return (value >> amount) | (value << (_WORD - amount))


@uncounted
def _shift_mix(value: Any) -> Any:
    return value ^ (value >> np.uint64(47))


@uncounted
def _mix(u: Any, v: Any, mul: Any) -> Any:
    a = _shift_mix((u ^ v) * mul)
    return _shift_mix((v ^ a) * mul) * mul


@uncounted
def fingerprint_cat64(first: Any, second: Any) -> Any:
    """Two fingerprints combined, order-sensitive, as TensorFlow's ``FingerprintCat64``."""
    result = first ^ _CAT ^ (_shift_mix(second * _CAT) * _CAT)
    return _shift_mix(_shift_mix(result * _CAT) * _CAT)


@uncounted
def fingerprint64(data: Array, at: int, size: int) -> Any:
    """The fingerprint of ``size`` bytes from position ``at``."""
    if size <= 16:
        return _up_to_16(data, at, size)
    if size <= 32:
        return _up_to_32(data, at, size)
    if size <= 64:
        return _up_to_64(data, at, size)
    return _longer(data, at, size)


@uncounted
def _up_to_16(s: Array, at: int, size: int) -> Any:
    n = np.uint64(size)
    mul = _K2 + (n << _1)
    if size >= 8:
        a, b = load64(s, at) + _K2, load64(s, at + size - 8)
        return _mix(_rotate(b, 37) * mul + a, (_rotate(a, 25) + b) * mul, mul)
    if size >= 4:
        return _mix(n + (load32(s, at) << np.uint64(3)), load32(s, at + size - 4), mul)
    if size > 0:
        y = np.uint64(s[at]) + (np.uint64(s[at + (size >> 1)]) << np.uint64(8))
        z = n + (np.uint64(s[at + size - 1]) << np.uint64(2))
        return _shift_mix(y * _K2 ^ z * _K0) * _K2
    return _K2


@uncounted
def _up_to_32(s: Array, at: int, size: int) -> Any:
    mul = _K2 + (np.uint64(size) << _1)
    a, b = load64(s, at) * _K1, load64(s, at + 8)
    c, d = load64(s, at + size - 8) * mul, load64(s, at + size - 16) * _K2
    return _mix(_rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + _K2, 18) + c, mul)


@uncounted
def _up_to_64(s: Array, at: int, size: int) -> Any:
    mul = _K2 + (np.uint64(size) << _1)
    a, b = load64(s, at) * _K2, load64(s, at + 8)
    c, d = load64(s, at + size - 8) * mul, load64(s, at + size - 16) * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _mix(y, a + _rotate(b + _K2, 18) + c, mul)
    e, f = load64(s, at + 16) * mul, load64(s, at + 24)
    g, h = (y + load64(s, at + size - 32)) * mul, (z + load64(s, at + size - 24)) * mul
    return _mix(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, mul)


@uncounted
def _weak(s: Array, at: int, a: Any, b: Any) -> Any:
    w, z = load64(s, at), load64(s, at + 24)
    a = a + w
    b = _rotate(b + a + z, 21)
    c = a
    a = a + load64(s, at + 8) + load64(s, at + 16)
    return a + z, b + _rotate(a, 44) + c


@uncounted
def _longer(s: Array, at: int, size: int) -> Any:
    zero = np.uint64(0)
    y = _SEED_Y
    z = _shift_mix(y * _K2 + _113) * _K2
    v0, v1, w0, w1 = zero, zero, zero, zero
    x = _SEED * _K2 + load64(s, at)
    for i in range(at, at + (size - 1) // 64 * 64, 64):
        x = _rotate(x + y + v0 + load64(s, i + 8), 37) * _K1 ^ w1
        y = _rotate(y + v1 + load64(s, i + 48), 42) * _K1 + v0 + load64(s, i + 40)
        z = _rotate(z + w0, 33) * _K1
        v0, v1 = _weak(s, i, v1 * _K1, x + w0)
        w0, w1 = _weak(s, i + 32, z + w1, y + load64(s, i + 16))
        z, x = x, z
    mul, i = _K1 + ((z & np.uint64(0xFF)) << _1), at + size - 64
    w0 += np.uint64((size - 1) & 63)
    v0 += w0
    w0 += v0
    x = _rotate(x + y + v0 + load64(s, i + 8), 37) * mul ^ (w1 * _9)
    y = _rotate(y + v1 + load64(s, i + 48), 42) * mul + v0 * _9 + load64(s, i + 40)
    z = _rotate(z + w0, 33) * mul
    v0, v1 = _weak(s, i, v1 * mul, x + w0)
    w0, w1 = _weak(s, i + 32, z + w1, y + load64(s, i + 16))
    return _mix(_mix(v0, w0, mul) + _shift_mix(y) * _K0 + x, _mix(v1, w1, mul) + z, mul)
