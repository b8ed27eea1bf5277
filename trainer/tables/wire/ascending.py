"""Ascending int64 as differences of variable length: 7 bits a byte, the low ones first, as in LEB128.

The first number is written as a zigzag code, each later one as its difference to the one before, less 1. On power laws that takes
1 to 3 bytes a number, and never more than one width for all differences takes, which the largest of them decides.
"""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined

#: The most bytes of a number.
MOST_BYTES = 10

_WORD = np.uint64
_LOW, _MORE, _BITS, _ONE = _WORD(0x7F), _WORD(0x80), _WORD(7), _WORD(1)
_SIGN = _WORD(1 << 63)
#: What a number may begin with after 63 bits.
_LAST_SHIFT = _WORD(63)


@inlined
def _put(number: np.uint64, out: Array, at: int) -> int:
    """Write a uint64; returns the position after it."""
    while number >= _MORE:
        out[at] = np.uint8((number & _LOW) | _MORE)
        number >>= _BITS
        at += 1
    out[at] = np.uint8(number)
    return at + 1


@compiled
def put_ascending(numbers: Array, out: Array) -> int:
    """Write int64 ``numbers`` into ``out``, uint8 with :data:`MOST_BYTES` for each.

    Returns the bytes written, or -1 if a number is not above the one before.
    """
    if len(numbers) == 0:
        return 0
    before = numbers[0]
    sign = _WORD(before >> 63)
    at = _put((_WORD(before) << _ONE) ^ sign, out, 0)
    for i in range(1, len(numbers)):
        number = numbers[i]
        if number <= before:
            return -1
        gap = _WORD(number) - _WORD(before) - _ONE
        if gap < _MORE:
            out[at] = np.uint8(gap)
            at += 1
        else:
            at = _put(gap, out, at)
        before = number
    return at


@compiled
def take_ascending(buffer: Array, out: Array) -> bool:
    """Read as many int64 as ``out`` has; whether ``buffer``, uint8, is what :func:`put_ascending` writes for them, and no more."""
    at, size = 0, len(buffer)
    key = _WORD(0)  # a number with its sign bit inverted: keys of ascending numbers ascend
    for i in range(len(out)):
        if at == size:
            return False
        code = _WORD(buffer[at])
        at += 1
        if code >= _MORE:
            code &= _LOW
            shift = _BITS
            while True:
                if at == size or shift > _LAST_SHIFT:
                    return False
                byte = _WORD(buffer[at])
                at += 1
                if shift == _LAST_SHIFT and byte > _ONE:
                    return False
                code |= (byte & _LOW) << shift
                if byte < _MORE:
                    break
                shift += _BITS
            if byte == _WORD(0):
                return False
        if i == 0:
            key = ((code >> _ONE) ^ (_WORD(0) - (code & _ONE))) ^ _SIGN
        else:
            if code >= ~key:
                return False
            key += code + _ONE
        out[i] = np.int64(key ^ _SIGN)
    return at == size
