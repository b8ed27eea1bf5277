"""Blocks of 16-bit floats, scaled by their infinity norms: lossy, half the bytes of float32.

A float16 has 11 significant bits between 2^-14 and 2^16 and few outside, while gradients may be anywhere in the range of a float32.
So a block of values is multiplied by a power of two that moves its infinity norm into [2^14, 2^15), near the largest float16, and
is then rounded to the nearest float16. Multiplication by a power of two is exact: the rounding is the only error, and values that
a float16 has are kept. The mapping is the non-uniform one of Persia (Lian et al., 2021), whose factor is a constant over the norm.

For a block with infinity norm ``n`` and a value ``x`` of it, the error is at most ``max(2^-11 |x|, 2^-39 n)``. Zeros keep their signs.
Equal values have equal bytes on every machine, and a decoded block, encoded again, has its bytes again.

The bytes are little-endian: a uint16 for every block, the exponent field of the float32 that values are multiplied by to decode
(1 to 240), then a float16 for every value. The value at position i is the float16 at position ``blocks + i``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.errors import BadBatch
from transforms.kernels.compiled import compiled, pasted

Array = np.ndarray[Any, np.dtype[Any]]

#: Values of a block: scales are then 0.8 % of the bytes, and a block is in the first cache when it is read again.
BLOCK_VALUES = 128
#: The largest relative error of a value above 2^-28 of its block's infinity norm.
RELATIVE_ERROR = 2.0**-11
#: The largest error of smaller values, relative to the norm.
NORM_ERROR = 2.0**-39

_WORD = np.uint32
_MAGNITUDE, _INFINITE = _WORD(0x7FFFFFFF), _WORD(0x7F800000)
_HALF_MAGNITUDE, _HALF_SIGN = _WORD(0x7FFF), _WORD(0x8000)
#: The largest float16 below 2^15.
_LARGEST = _WORD(0x77FF)
#: 2^-14 as float32, below which a float16 is subnormal, and 1.0 of its positions there.
_LEAST_NORMAL, _HALF_LEAST_NORMAL = _WORD(0x38800000), _WORD(0x400)
#: What the exponent of a float32 is more than that of a float16, in bits of each.
_EXPONENTS, _HALF_EXPONENTS = _WORD(112 << 23), _WORD(112 << 10)
_ADDED, _ADDED_BITS = np.float32(0.5), _WORD(0x3F000000)
_SUBNORMAL, _SUBNORMAL_BITS = np.float32(2.0**-14), _WORD(113 << 23)
_LEAST_SCALE, _LARGEST_SCALE = 1, 240
_GOOD = -1


def encoded_bytes(count: int, block: int = BLOCK_VALUES) -> int:
    """The bytes of ``count`` values."""
    return 2 * (_blocks(count, block) + count)


def encode(values: Array, out: Array, block: int = BLOCK_VALUES) -> None:
    """Write ``values``, flat float32, into ``out``, uint8 of :func:`encoded_bytes`.

    Raises :class:`BadBatch` for NaN and infinity, and for arrays of other types or sizes; ``out`` has no meaning then.
    """
    _check_values(values)
    scales, halves = _parts(out, len(values), block)
    bad = _encode_blocks(values, block, scales, halves)
    if bad != _GOOD:
        at = bad * block + int(np.flatnonzero(~np.isfinite(values[bad * block : (bad + 1) * block]))[0])
        raise BadBatch("values on the wire must be finite", where=f"position {at}", value=float(values[at]))


def decode(buffer: Array, out: Array, block: int = BLOCK_VALUES) -> None:
    """Write the values of ``buffer``, uint8 of :func:`encoded_bytes`, into ``out``, flat float32.

    All values are finite. Raises :class:`BadBatch` for scales and values that :func:`encode` does not write, and for arrays of other
    types or sizes; ``out`` has no meaning then.
    """
    _check_values(out)
    scales, halves = _parts(buffer, len(out), block)
    bad = _decode_blocks(scales, halves, block, out)
    if bad != _GOOD:
        raise BadBatch("a block of values on the wire must have a scale and values that an encoder writes", where=f"block {bad}",
                       value=int(scales[bad]), allowed=f"scales {_LEAST_SCALE} to {_LARGEST_SCALE}, values below 2^15")  # fmt: skip


def _blocks(count: int, block: int) -> int:
    return -(-count // block)


def _check_values(values: Array) -> None:
    if values.dtype != np.float32 or values.ndim != 1 or not values.flags.c_contiguous:
        raise BadBatch("values on the wire must be flat float32", value=(str(values.dtype), values.shape))


def _parts(buffer: Array, count: int, block: int) -> tuple[Array, Array]:
    """The scales and the values of an encoded buffer, as uint16."""
    size = encoded_bytes(count, block)
    if buffer.dtype != np.uint8 or buffer.shape != (size,) or not buffer.flags.c_contiguous:
        raise BadBatch(f"{count} values on the wire must have {size} bytes", value=(str(buffer.dtype), buffer.shape),
                       allowed=f"uint8 ({size},)")  # fmt: skip
    words = buffer.view(np.uint16)
    blocks = _blocks(count, block)
    return words[:blocks], words[blocks:]


@pasted
def _half_of(value: np.float32) -> np.uint16:
    """The bits of the nearest float16 of a value below 2^15 in magnitude; ties go to the even one.

    A subnormal float16 counts multiples of 2^-24, which are the last bits of a float32 in [0.5, 1): adding 0.5 rounds to them.
    """
    bits = np.uint32(np.float32(value).view(np.uint32))
    magnitude = _WORD(bits & _MAGNITUDE)
    odd = _WORD(_WORD(magnitude >> _WORD(13)) & _WORD(1))
    normal = _WORD(_WORD(_WORD(magnitude + _WORD(0xFFF) + odd) >> _WORD(13)) - _HALF_EXPONENTS)
    subnormal = _WORD(np.float32(abs(value) + _ADDED).view(np.uint32) - _ADDED_BITS)
    half = subnormal if magnitude < _LEAST_NORMAL else normal
    return np.uint16(_WORD(min(half, _LARGEST)) | _WORD(_WORD(bits >> _WORD(16)) & _HALF_SIGN))


@compiled
def _encode_blocks(values: Array, block: int, scales: Array, halves: Array) -> int:
    """Encode; returns the first block with NaN or infinity, or _GOOD. Its loops are vectorised by LLVM."""
    for b in range(len(scales)):
        part = values[b * block : (b + 1) * block]
        to = halves[b * block : (b + 1) * block]
        norm = _WORD(0)
        for i in range(len(part)):
            norm = max(norm, _WORD(np.float32(part[i]).view(np.uint32) & _MAGNITUDE))
        if norm >= _INFINITE:
            return b
        # Exponent fields: 127 + 14 is that of [2^14, 2^15); the factor and its inverse are normal float32.
        raised = min(max(127 + 127 + 14 - np.int64(norm >> _WORD(23)), 14), 253)
        scales[b] = 254 - raised
        factor = np.uint32(_WORD(raised) << _WORD(23)).view(np.float32)
        for i in range(len(part)):
            to[i] = _half_of(part[i] * factor)
    return _GOOD


@compiled
def _decode_blocks(scales: Array, halves: Array, block: int, out: Array) -> int:
    """Decode; returns the first block that no encoder writes, or _GOOD. Its loop is vectorised by LLVM."""
    for b in range(len(scales)):
        part = halves[b * block : (b + 1) * block]
        to = out[b * block : (b + 1) * block]
        if scales[b] < _LEAST_SCALE or scales[b] > _LARGEST_SCALE:
            return b
        factor = np.uint32(_WORD(scales[b]) << _WORD(23)).view(np.float32)
        largest = _WORD(0)
        for i in range(len(part)):
            half = _WORD(part[i])
            magnitude = _WORD(half & _HALF_MAGNITUDE)
            largest = max(largest, magnitude)
            bits = _WORD(magnitude << _WORD(13))
            normal = np.uint32(bits + _EXPONENTS).view(np.float32)
            subnormal = np.uint32(bits + _SUBNORMAL_BITS).view(np.float32) - _SUBNORMAL
            value = (subnormal if magnitude < _HALF_LEAST_NORMAL else normal) * factor
            sign = _WORD(_WORD(half & _HALF_SIGN) << _WORD(16))
            to[i] = np.uint32(np.float32(value).view(np.uint32) | sign).view(np.float32)
        if largest > _LARGEST:
            return b
    return _GOOD
