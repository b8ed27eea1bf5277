"""Integers as decimal text and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, uncounted

_TEN = np.uint64(10)
_ZERO, _PLUS, _MINUS = 48, 43, 45
_MAGNITUDE_MAX = np.uint64(2**63)


@uncounted
def write_decimal(value: Any, target: Array, at: int) -> int:
    """Write ``value`` in decimal from position ``at`` and return the number of bytes, at most 20."""
    rest = np.uint64(value)
    first = at
    if value < 0:
        rest = ~rest + np.uint64(1)
        target[at] = _MINUS
        first = at + 1
    end = first
    count = rest
    while True:
        end += 1
        count //= _TEN
        if count == np.uint64(0):
            break
    for i in range(end - 1, first - 1, -1):
        target[i] = np.uint8(_ZERO + np.int64(rest % _TEN))
        rest //= _TEN
    return end - at


@compiled
def write_decimals(values: Array) -> tuple[Array, Array]:
    """Every value in decimal: (bytes, int64 offsets)."""
    data, offsets = np.empty(20 * len(values), np.uint8), np.empty(len(values) + 1, np.int64)
    offsets[0] = 0
    for i in range(len(values)):
        offsets[i + 1] = offsets[i] + write_decimal(values[i], data, offsets[i])
    return data[: offsets[-1]], offsets


@compiled
def read_decimals(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """(values, which of them are whole numbers that fit int64). Others are 0."""
    values, good = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.bool_)
    for i in range(len(starts)):
        at, end = starts[i], ends[i]
        negative = at < end and data[at] == _MINUS
        if at < end and (data[at] == _MINUS or data[at] == _PLUS):
            at += 1
        limit = _MAGNITUDE_MAX if negative else _MAGNITUDE_MAX - np.uint64(1)
        magnitude, fits = np.uint64(0), at < end
        while at < end and fits:
            digit = np.uint64(data[at] - np.uint8(_ZERO))
            fits = digit < _TEN and magnitude <= (limit - digit) // _TEN
            magnitude = magnitude * _TEN + digit
            at += 1
        if fits:
            good[i] = True
            values[i] = np.int64(~magnitude + np.uint64(1)) if negative else np.int64(magnitude)
    return values, good
