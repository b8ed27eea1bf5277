"""Floats rounded to bfloat16, the upper half of a float32: half the bytes, with all of its range.

The nearest one is taken, ties go to the even one: a value in the normal range has a relative error of at most 2^-8. NaN stays NaN, infinity
infinity, and zeros keep their signs; a value above the largest bfloat16 becomes infinity. Equal values have equal bytes on every machine, and
a rounded value stays as it is. The bytes are little-endian.
"""

from __future__ import annotations

import numpy as np

from trainer.tables.wire.scaled_blocks import MAGNITUDE, WORD, check_buffer, check_values
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

#: The largest relative error of a normal value.
RELATIVE_ERROR = 2.0**-8
_INFINITY, _QUIET = WORD(0x7F800000), WORD(0x40)


def encoded_bytes(count: int) -> int:
    """The bytes of ``count`` values."""
    return 2 * count


def encode(values: Array) -> Array:
    """The bytes of ``values``, flat float32: uint8 of :func:`encoded_bytes`. Raises :class:`~trainer.errors.BadBatch` for other arrays."""
    check_values(values)
    found = np.empty(len(values), np.uint16)
    _encode(values.view(np.uint32), found)
    return found.view(np.uint8)


def decode(buffer: Array, out: Array) -> None:
    """Write the values of ``buffer``, uint8 of :func:`encoded_bytes`, into ``out``, flat float32. Raises :class:`~trainer.errors.BadBatch` for other arrays."""
    check_values(out)
    check_buffer(buffer, len(out), encoded_bytes(len(out)))
    _decode(buffer.view(np.uint16), out.view(np.uint32))


@compiled
def _encode(words: Array, halves: Array) -> None:
    for i in range(len(words)):
        bits = WORD(words[i])
        upper = WORD(bits >> WORD(16))
        rounded = WORD(WORD(bits + WORD(0x7FFF) + WORD(upper & WORD(1))) >> WORD(16))
        # NaN would overflow to a zero; its upper half alone may have no bit of the mantissa.
        halves[i] = WORD(upper | _QUIET) if WORD(bits & MAGNITUDE) > _INFINITY else rounded


@compiled
def _decode(halves: Array, words: Array) -> None:
    for i in range(len(halves)):
        words[i] = WORD(WORD(halves[i]) << WORD(16))
