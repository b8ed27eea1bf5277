"""Blocks of 16-bit floats, scaled by their infinity norms: lossy, half the bytes of float32.

A float16 has 11 significant bits between 2^-14 and 2^16 and few outside, while gradients may be anywhere in the range of a float32.
So a block of values is multiplied by a power of two that moves its infinity norm into [2^14, 2^15), near the largest float16, and
is then rounded to the nearest float16. Multiplication by a power of two is exact: the rounding is the only error, and values that
a float16 has are kept. The mapping is the non-uniform one of Persia (Lian et al., 2021), whose factor is a constant over the norm.

For a block with infinity norm ``n`` and a value ``x`` of it, the error is at most ``max(2^-11 |x|, 2^-39 n)``. Zeros keep their signs.
Equal values have equal bytes on every machine, and a decoded block, encoded again, has its bytes again.

The bytes are little-endian: a uint16 for every block, its scale (``scaled_blocks.py``), then a float16 for every value. The value at
position i is the float16 at position ``blocks + i``.
"""

from __future__ import annotations

import numpy as np

from trainer.tables.wire.scaled_blocks import (
    BLOCK_VALUES,
    GOOD,
    LARGEST_SCALE,
    LEAST_SCALE,
    MAGNITUDE,
    WORD,
    blocks_of,
    check_buffer,
    check_values,
    decoding_factor,
    encoding_factor,
    not_encoded,
    not_finite,
    scale_of,
)
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, pasted

#: The largest relative error of a value above 2^-28 of its block's infinity norm.
RELATIVE_ERROR = 2.0**-11
#: The largest error of smaller values, relative to the norm.
NORM_ERROR = 2.0**-39

_HALF_MAGNITUDE, _HALF_SIGN = WORD(0x7FFF), WORD(0x8000)
#: The largest float16 below 2^15.
_LARGEST = WORD(0x77FF)
#: 2^-14, below which a float16 is subnormal, as the bits of a float32 and of a float16.
_LEAST_NORMAL, _HALF_LEAST_NORMAL = WORD(0x38800000), WORD(0x400)
#: What the exponent of a float32 is more than that of a float16, in bits of each.
_EXPONENTS, _HALF_EXPONENTS = WORD(112 << 23), WORD(112 << 10)
_ADDED, _ADDED_BITS = np.float32(0.5), WORD(0x3F000000)
_SUBNORMAL, _SUBNORMAL_BITS = np.float32(2.0**-14), WORD(113 << 23)


def encoded_bytes(count: int, block: int = BLOCK_VALUES) -> int:
    """The bytes of ``count`` values."""
    return 2 * (blocks_of(count, block) + count)


def encode(values: Array, out: Array, block: int = BLOCK_VALUES) -> None:
    """Write ``values``, flat float32, into ``out``, uint8 of :func:`encoded_bytes`.

    Raises :class:`~trainer.errors.BadBatch` for NaN and infinity, and for arrays of other types or sizes; ``out`` has no meaning then.
    """
    check_values(values)
    scales, halves = _parts(out, len(values), block)
    bad = _encode_blocks(values, block, scales, halves)
    if bad != GOOD:
        raise not_finite(values, bad, block)


def decode(buffer: Array, out: Array, block: int = BLOCK_VALUES) -> None:
    """Write the values of ``buffer``, uint8 of :func:`encoded_bytes`, into ``out``, flat float32.

    All values are finite. Raises :class:`~trainer.errors.BadBatch` for scales and values that :func:`encode` does not write, and for
    arrays of other types or sizes; ``out`` has no meaning then.
    """
    check_values(out)
    scales, halves = _parts(buffer, len(out), block)
    bad = _decode_blocks(scales, halves, block, out)
    if bad != GOOD:
        raise not_encoded(scales, bad)


def _parts(buffer: Array, count: int, block: int) -> tuple[Array, Array]:
    """The scales and the values of an encoded buffer, as uint16."""
    check_buffer(buffer, count, encoded_bytes(count, block))
    words = buffer.view(np.uint16)
    blocks = blocks_of(count, block)
    return words[:blocks], words[blocks:]


@pasted
def _half_of(value: np.float32) -> np.uint16:
    """The bits of the nearest float16 of a value below 2^15 in magnitude; ties go to the even one.

    A subnormal float16 counts multiples of 2^-24, which are the last bits of a float32 in [0.5, 1): adding 0.5 rounds to them.
    """
    bits = np.uint32(np.float32(value).view(np.uint32))
    magnitude = WORD(bits & MAGNITUDE)
    odd = WORD(WORD(magnitude >> WORD(13)) & WORD(1))
    normal = WORD(WORD(WORD(magnitude + WORD(0xFFF) + odd) >> WORD(13)) - _HALF_EXPONENTS)
    subnormal = WORD(np.float32(abs(value) + _ADDED).view(np.uint32) - _ADDED_BITS)
    half = subnormal if magnitude < _LEAST_NORMAL else normal
    return np.uint16(WORD(min(half, _LARGEST)) | WORD(WORD(bits >> WORD(16)) & _HALF_SIGN))


@compiled
def _encode_blocks(values: Array, block: int, scales: Array, halves: Array) -> int:
    """Encode; returns the first block with NaN or infinity, or GOOD. Its loops are vectorised by LLVM."""
    for b in range(len(scales)):
        part = values[b * block : (b + 1) * block]
        to = halves[b * block : (b + 1) * block]
        scale = scale_of(part)
        if scale == 0:
            return b
        scales[b] = scale
        factor = encoding_factor(scale)
        for i in range(len(part)):
            to[i] = _half_of(part[i] * factor)
    return GOOD


@compiled
def _decode_blocks(scales: Array, halves: Array, block: int, out: Array) -> int:
    """Decode; returns the first block that no encoder writes, or GOOD. Its loop is vectorised by LLVM."""
    for b in range(len(scales)):
        part = halves[b * block : (b + 1) * block]
        to = out[b * block : (b + 1) * block]
        if scales[b] < LEAST_SCALE or scales[b] > LARGEST_SCALE:
            return b
        factor = decoding_factor(scales[b])
        largest = WORD(0)
        for i in range(len(part)):
            half = WORD(part[i])
            magnitude = WORD(half & _HALF_MAGNITUDE)
            largest = max(largest, magnitude)
            bits = WORD(magnitude << WORD(13))
            normal = np.uint32(bits + _EXPONENTS).view(np.float32)
            subnormal = np.uint32(bits + _SUBNORMAL_BITS).view(np.float32) - _SUBNORMAL
            value = (subnormal if magnitude < _HALF_LEAST_NORMAL else normal) * factor
            sign = WORD(WORD(half & _HALF_SIGN) << WORD(16))
            to[i] = np.uint32(np.float32(value).view(np.uint32) | sign).view(np.float32)
        if largest > _LARGEST:
            return b
    return GOOD
