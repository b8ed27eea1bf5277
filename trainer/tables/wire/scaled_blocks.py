"""Blocks of values with a power of two as their scale: what the 16-bit and the 14-bit encodings have in common.

A block is multiplied by the power of two that moves its infinity norm into [2^14, 2^15), or by 2^126 if that is less. Its scale is the
exponent field of the float32 that values are multiplied by to decode: 1 to 240.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.errors import BadBatch
from transforms.arrays import Array
from transforms.kernels.compiled import inlined

#: Values of a block: scales are then 0.8 % of the bytes, and a block is in the first cache when it is read again.
BLOCK_VALUES = 128
#: The scales that an encoder writes.
LEAST_SCALE, LARGEST_SCALE = 1, 240
#: What kernels return if every block is good, else the position of the first that is not.
GOOD = -1

WORD = np.uint32
#: The bits of a float32 but its sign.
MAGNITUDE = WORD(0x7FFFFFFF)
_INFINITE = WORD(0x7F800000)


def blocks_of(count: int, block: int) -> int:
    """The blocks of ``count`` values."""
    return -(-count // block)


def check_values(values: Array) -> None:
    """Raise :class:`BadBatch` if ``values`` is no flat float32 array."""
    if values.dtype != np.float32 or values.ndim != 1 or not values.flags.c_contiguous:
        raise BadBatch("values on the wire must be flat float32", value=(str(values.dtype), values.shape))


def check_buffer(buffer: Array, count: int, size: int) -> None:
    """Raise :class:`BadBatch` if ``buffer`` is no flat uint8 array of ``size`` bytes, those of ``count`` values."""
    if buffer.dtype != np.uint8 or buffer.shape != (size,) or not buffer.flags.c_contiguous:
        raise BadBatch(f"{count} values on the wire must have {size} bytes", value=(str(buffer.dtype), buffer.shape),
                       allowed=f"uint8 ({size},)")  # fmt: skip


def not_finite(values: Array, bad: int, block: int) -> BadBatch:
    """The error for block ``bad`` of ``values``."""
    at = bad * block + int(np.flatnonzero(~np.isfinite(values[bad * block : (bad + 1) * block]))[0])
    return BadBatch("values on the wire must be finite", where=f"position {at}", value=float(values[at]))


def not_encoded(scales: Array, bad: int) -> BadBatch:
    """The error for a received block that no encoder writes."""
    return BadBatch("a block of values on the wire must have a scale and values that an encoder writes", where=f"block {bad}",
                    value=int(scales[bad]), allowed=f"scales {LEAST_SCALE} to {LARGEST_SCALE}, finite values")  # fmt: skip


@inlined
def scale_of(part: Array) -> int:
    """The scale of a block, or 0 if it has NaN or infinity; its loop is vectorised by LLVM."""
    norm = WORD(0)
    for i in range(len(part)):
        norm = max(norm, WORD(np.float32(part[i]).view(np.uint32) & MAGNITUDE))
    if norm >= _INFINITE:
        return 0
    # The exponent field of [2^14, 2^15) is 127 + 14; that of a factor 2^k is 127 + k, and of its inverse 127 - k.
    scale: Any = np.int64(norm >> WORD(23)) - 14
    return int(max(scale, LEAST_SCALE))


@inlined
def encoding_factor(scale: int) -> np.float32:
    """The power of two that values of this scale are multiplied by before they are rounded."""
    return np.uint32(WORD(254 - scale) << WORD(23)).view(np.float32)


@inlined
def decoding_factor(scale: int) -> np.float32:
    """The inverse of :func:`encoding_factor`."""
    return np.uint32(WORD(scale) << WORD(23)).view(np.float32)
