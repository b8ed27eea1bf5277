"""FarmHash Fingerprint64 in plain Python, the reference of :mod:`transforms.kernels.farmhash`.

The algorithm is Google's FarmHash (farmhashna::Hash64), whose 64-bit fingerprint is fixed for all time. TensorFlow's
``to_hash_bucket_fast`` and BigQuery's ``FARM_FINGERPRINT`` use it.
"""

from __future__ import annotations

_MASK = 2**64 - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_CAT_MULTIPLIER = 0xC6A4A7935BD1E995


def fingerprint64(data: bytes) -> int:
    """The unsigned 64-bit fingerprint of ``data``."""
    length = len(data)
    if length <= 16:
        return _up_to_16(data)
    if length <= 32:
        return _up_to_32(data)
    if length <= 64:
        return _up_to_64(data)
    return _longer(data)


def fingerprint_cat64(first: int, second: int) -> int:
    """Two fingerprints combined, order-sensitive, as TensorFlow's ``FingerprintCat64``."""
    result = first ^ _CAT_MULTIPLIER ^ (_shift_mix(second * _CAT_MULTIPLIER & _MASK) * _CAT_MULTIPLIER & _MASK)
    result = result * _CAT_MULTIPLIER & _MASK
    result = _shift_mix(result) * _CAT_MULTIPLIER & _MASK
    return _shift_mix(result)


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _rotate(value: int, shift: int) -> int:
    return (value >> shift | value << (64 - shift)) & _MASK


def _shift_mix(value: int) -> int:
    return value ^ value >> 47


def _mix(u: int, v: int, mul: int) -> int:
    a = _shift_mix((u ^ v) * mul & _MASK)
    b = _shift_mix((v ^ a) * mul & _MASK)
    return b * mul & _MASK


def _up_to_16(s: bytes) -> int:
    n = len(s)
    if n >= 8:
        mul = _K2 + n * 2 & _MASK
        a, b = _u64(s, 0) + _K2 & _MASK, _u64(s, n - 8)
        c = _rotate(b, 37) * mul + a & _MASK
        d = (_rotate(a, 25) + b) * mul & _MASK
        return _mix(c, d, mul)
    if n >= 4:
        return _mix(n + (_u32(s, 0) << 3) & _MASK, _u32(s, n - 4), _K2 + n * 2 & _MASK)
    if n:
        y, z = s[0] + (s[n >> 1] << 8), n + (s[n - 1] << 2)
        return _shift_mix((y * _K2 ^ z * _K0) & _MASK) * _K2 & _MASK
    return _K2


def _up_to_32(s: bytes) -> int:
    n = len(s)
    mul = _K2 + n * 2 & _MASK
    a, b = _u64(s, 0) * _K1 & _MASK, _u64(s, 8)
    c, d = _u64(s, n - 8) * mul & _MASK, _u64(s, n - 16) * _K2 & _MASK
    u = _rotate(a + b & _MASK, 43) + _rotate(c, 30) + d & _MASK
    return _mix(u, a + _rotate(b + _K2 & _MASK, 18) + c & _MASK, mul)


def _up_to_64(s: bytes) -> int:
    n = len(s)
    mul = _K2 + n * 2 & _MASK
    a, b = _u64(s, 0) * _K2 & _MASK, _u64(s, 8)
    c, d = _u64(s, n - 8) * mul & _MASK, _u64(s, n - 16) * _K2 & _MASK
    y = _rotate(a + b & _MASK, 43) + _rotate(c, 30) + d & _MASK
    z = _mix(y, a + _rotate(b + _K2 & _MASK, 18) + c & _MASK, mul)
    e, f = _u64(s, 16) * mul & _MASK, _u64(s, 24)
    g, h = (y + _u64(s, n - 32)) * mul & _MASK, (z + _u64(s, n - 24)) * mul & _MASK
    u = _rotate(e + f & _MASK, 43) + _rotate(g, 30) + h & _MASK
    return _mix(u, e + _rotate(f + a & _MASK, 18) + g & _MASK, mul)


def _weak(s: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_u64(s, at + 8 * i) for i in range(4))
    a = a + w & _MASK
    b = _rotate(b + a + z & _MASK, 21)
    c = a
    a = a + x + y & _MASK
    b = b + _rotate(a, 44) & _MASK
    return a + z & _MASK, b + c & _MASK


def _longer(s: bytes) -> int:
    n, seed = len(s), 81
    x, y = seed, seed * _K1 + 113 & _MASK
    z = _shift_mix(y * _K2 + 113 & _MASK) * _K2 & _MASK
    v, w = (0, 0), (0, 0)
    x = x * _K2 + _u64(s, 0) & _MASK
    last = (n - 1) // 64 * 64
    for at in range(0, last, 64):
        x = _rotate(x + y + v[0] + _u64(s, at + 8) & _MASK, 37) * _K1 & _MASK
        y = _rotate(y + v[1] + _u64(s, at + 48) & _MASK, 42) * _K1 & _MASK
        x ^= w[1]
        y = y + v[0] + _u64(s, at + 40) & _MASK
        z = _rotate(z + w[0] & _MASK, 33) * _K1 & _MASK
        v = _weak(s, at, v[1] * _K1 & _MASK, x + w[0] & _MASK)
        w = _weak(s, at + 32, z + w[1] & _MASK, y + _u64(s, at + 16) & _MASK)
        z, x = x, z
    mul, at = _K1 + ((z & 0xFF) << 1) & _MASK, n - 64
    w = (w[0] + (n - 1 & 63) & _MASK, w[1])
    v = (v[0] + w[0] & _MASK, v[1])
    w = (w[0] + v[0] & _MASK, w[1])
    x = _rotate(x + y + v[0] + _u64(s, at + 8) & _MASK, 37) * mul & _MASK
    y = _rotate(y + v[1] + _u64(s, at + 48) & _MASK, 42) * mul & _MASK
    x ^= w[1] * 9 & _MASK
    y = y + v[0] * 9 + _u64(s, at + 40) & _MASK
    z = _rotate(z + w[0] & _MASK, 33) * mul & _MASK
    v = _weak(s, at, v[1] * mul & _MASK, x + w[0] & _MASK)
    w = _weak(s, at + 32, z + w[1] & _MASK, y + _u64(s, at + 16) & _MASK)
    z, x = x, z
    low = _mix(v[0], w[0], mul) + _shift_mix(y) * _K0 + z & _MASK
    return _mix(low, _mix(v[1], w[1], mul) + x & _MASK, mul)
