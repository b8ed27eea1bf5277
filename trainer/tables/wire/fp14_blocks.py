"""Blocks of 14-bit floats, scaled by their infinity norms: lossy, 0.44 of the bytes of float32.

As ``fp16_blocks.py``, with 4 bits of exponent and 9 of fraction. The scale already moves a block near the largest values, where 15
exponents reach down to 2^-14 of the norm, and fixed steps further; there is neither infinity nor NaN. For a block with infinity norm
``n`` and a value ``x`` of it, the error is at most ``max(2^-10 |x|, 2^-24 n, 2^-136)``. Zeros keep their signs, equal values have equal
bytes on every machine, and a decoded block, encoded again, has its bytes again.

The bytes are little-endian: a uint16 for every block, its scale (``scaled_blocks.py``); then block after block the low 8 bits of each
value, and the high 6 bits (sign, exponent, 1 bit of fraction). Those of the values j, j + q, j + 2q and j + 3q of a block, where q is a
quarter of it, are 24 bits in the bytes j, q + j and 2q + j. The last block may be shorter; its bits without a value are 0.
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

#: The largest relative error of a value above 2^-14 of its block's infinity norm.
RELATIVE_ERROR = 2.0**-10
#: The largest error of smaller values, relative to the norm.
NORM_ERROR = 2.0**-24
#: The largest error of values whose block has a norm below 2^-112.
TINY_ERROR = 2.0**-136

_CODE_MAGNITUDE = WORD(0x1FFF)
#: 1, below which a code counts multiples of 2^-9, as the bits of a float32 and as a code.
_LEAST_NORMAL, _CODE_LEAST_NORMAL = WORD(0x3F800000), WORD(0x200)
#: What the exponent of a float32 is more than that of a code, in bits of each.
_EXPONENTS, _CODE_EXPONENTS = WORD(126 << 23), WORD(126 << 9)
#: The last bits of a float32 in [2^14, 2^15) are multiples of 2^-9.
_ADDED, _ADDED_BITS = np.float32(2.0**14), WORD(0x46800000)
_SUBNORMAL, _SUBNORMAL_BITS = np.float32(1.0), WORD(127 << 23)


def encoded_bytes(count: int) -> int:
    """The bytes of ``count`` values."""
    return 2 * blocks_of(count, BLOCK_VALUES) + count + 3 * _quarter(count)


def _quarter(count: int) -> int:
    return -(-count // 4)


def encode(values: Array, out: Array) -> None:
    """Write ``values``, flat float32, into ``out``, uint8 of :func:`encoded_bytes`.

    Raises :class:`~trainer.errors.BadBatch` for NaN and infinity, and for arrays of other types or sizes; ``out`` has no meaning then.
    """
    check_values(values)
    scales, codes = _parts(out, len(values))
    bad = _encode_blocks(values, scales, codes)
    if bad != GOOD:
        raise not_finite(values, bad, BLOCK_VALUES)


def decode(buffer: Array, out: Array) -> None:
    """Write the values of ``buffer``, uint8 of :func:`encoded_bytes`, into ``out``, flat float32.

    All values are finite. Raises :class:`~trainer.errors.BadBatch` for scales and bits that :func:`encode` does not write, and for
    arrays of other types or sizes; ``out`` has no meaning then.
    """
    check_values(out)
    scales, codes = _parts(buffer, len(out))
    bad = _decode_blocks(scales, codes, out)
    if bad != GOOD:
        raise not_encoded(scales, bad)


def _parts(buffer: Array, count: int) -> tuple[Array, Array]:
    """The scales of an encoded buffer, uint16, and the bytes after them."""
    check_buffer(buffer, count, encoded_bytes(count))
    scale_bytes = 2 * blocks_of(count, BLOCK_VALUES)
    return buffer[:scale_bytes].view(np.uint16), buffer[scale_bytes:]


@pasted
def _code_of(value: np.float32) -> np.uint32:
    """The 14 bits of the nearest code of a value below 2^15 in magnitude; ties go to the even one."""
    bits = np.uint32(np.float32(value).view(np.uint32))
    magnitude = WORD(bits & MAGNITUDE)
    odd = WORD(WORD(magnitude >> WORD(14)) & WORD(1))
    normal = WORD(WORD(WORD(magnitude + WORD(0x1FFF) + odd) >> WORD(14)) - _CODE_EXPONENTS)
    subnormal = WORD(np.float32(abs(value) + _ADDED).view(np.uint32) - _ADDED_BITS)
    code = subnormal if magnitude < _LEAST_NORMAL else normal
    return WORD(WORD(min(code, _CODE_MAGNITUDE)) | WORD(WORD(bits >> WORD(31)) << WORD(13)))


@compiled
def _encode_blocks(values: Array, scales: Array, codes: Array) -> int:
    """Encode; returns the first block with NaN or infinity, or GOOD. Its loops are vectorised by LLVM."""
    high, at = np.zeros(BLOCK_VALUES, np.uint8), 0
    for b in range(len(scales)):
        part = values[b * BLOCK_VALUES : (b + 1) * BLOCK_VALUES]
        scale = scale_of(part)
        if scale == 0:
            return b
        scales[b] = scale
        factor = encoding_factor(scale)
        low = codes[at : at + len(part)]
        high[len(part) :] = 0
        for i in range(len(part)):
            code = _code_of(part[i] * factor)
            low[i] = np.uint8(code)
            high[i] = np.uint8(WORD(code >> WORD(8)))
        at += len(part)
        q = (len(part) + 3) // 4
        first, second, third = codes[at : at + q], codes[at + q : at + 2 * q], codes[at + 2 * q : at + 3 * q]
        for j in range(q):
            first[j] = high[j] | (high[q + j] << 6)
            second[j] = (high[q + j] >> 2) | (high[2 * q + j] << 4)
            third[j] = (high[2 * q + j] >> 4) | (high[3 * q + j] << 2)
        at += 3 * q
    return GOOD


@compiled
def _decode_blocks(scales: Array, codes: Array, out: Array) -> int:
    """Decode; returns the first block that no encoder writes, or GOOD. Its loops are vectorised by LLVM."""
    high, at = np.zeros(BLOCK_VALUES, np.uint8), 0
    for b in range(len(scales)):
        to = out[b * BLOCK_VALUES : (b + 1) * BLOCK_VALUES]
        if scales[b] < LEAST_SCALE or scales[b] > LARGEST_SCALE:
            return b
        factor = decoding_factor(scales[b])
        low = codes[at : at + len(to)]
        at += len(to)
        q = (len(to) + 3) // 4
        first, second, third = codes[at : at + q], codes[at + q : at + 2 * q], codes[at + 2 * q : at + 3 * q]
        for j in range(q):
            high[j] = first[j] & 63
            high[q + j] = (first[j] >> 6) | ((second[j] & 15) << 2)
            high[2 * q + j] = (second[j] >> 4) | ((third[j] & 3) << 4)
            high[3 * q + j] = third[j] >> 2
        at += 3 * q
        for i in range(len(to), 4 * q):
            if high[i] != 0:
                return b
        for i in range(len(to)):
            code = WORD(WORD(low[i]) | WORD(WORD(high[i]) << WORD(8)))
            magnitude = WORD(code & _CODE_MAGNITUDE)
            bits = WORD(magnitude << WORD(14))
            normal = np.uint32(bits + _EXPONENTS).view(np.float32)
            subnormal = np.uint32(bits + _SUBNORMAL_BITS).view(np.float32) - _SUBNORMAL
            value = (subnormal if magnitude < _CODE_LEAST_NORMAL else normal) * factor
            sign = WORD(WORD(code >> WORD(13)) << WORD(31))
            to[i] = np.uint32(np.float32(value).view(np.uint32) | sign).view(np.float32)
    return GOOD
