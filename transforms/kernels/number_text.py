"""The kernel of ``to_number``. Decimal floats of up to 15 digits are read here, others by the exact rules of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, Strings
from transforms.errors import DataError
from transforms.kernels.buffers import spans
from transforms.kernels.compiled import compiled, uncounted
from transforms.kernels.decimals import read_decimals
from transforms.kernels.numbers import rounded
from transforms.kernels.spans import frozen
from transforms.operators.number_text import float_of
from transforms.types import DType

_PLUS, _MINUS, _POINT, _ZERO, _NINE = 43, 45, 46, 48, 57
#: An exponent's letter in either case, and the white space from tab to carriage return.
_EXPONENT, _EXPONENT_CAPITAL, _SPACE, _TAB, _RETURN = 101, 69, 32, 9, 13
_NOTHING, _READ, _LEFT = 0, 1, 2
#: Whole numbers up to this, and powers of ten up to that, are float64 exactly: one operation on them rounds once.
_EXACT, _EXACT_POWER = np.uint64(2**53), 22
#: An exponent of more digits than this is beyond every float.
_EXPONENT_MAX = 1_000_000
_POWERS = np.array([10.0**power for power in range(_EXACT_POWER + 1)])
#: The bits of a float64 that float32 has not, and their value halfway between two float32.
_LOST_BITS, _HALFWAY, _LEAST_NORMAL = 2**29 - 1, 2**28, 2.0**-126


def to_number(column: Column, *, dtype: str) -> Column:
    """The number that each text writes; those that write none are marked null."""
    if not isinstance(column, Strings):
        raise DataError("the argument of a text kernel must be text", value=type(column).__name__)
    data, starts, ends = spans(column)
    starts, ends = _trimmed(data, starts, ends)
    if DType(dtype) is DType.INT64:
        return Numbers(*read_decimals(data, frozen(starts), frozen(ends)))
    single = DType(dtype) is DType.FLOAT32
    values, found = _read_floats(data, frozen(starts), frozen(ends), _POWERS)
    if single:
        found[(found == _READ) & _may_round_twice(values)] = _LEFT
    for row in np.flatnonzero(found == _LEFT):
        value = float_of(data[starts[row] : ends[row]].tobytes().decode(), single=single)
        found[row], values[row] = (_NOTHING, 0.0) if value is None else (_READ, value)
    valid = found == _READ
    return Numbers(rounded(values, np.dtype(np.float32 if single else np.float64)), None if valid.all() else valid)


def _may_round_twice(values: Array) -> Array:
    """Whether the nearest float64 is halfway between two float32, or too small to decide by its bits."""
    sizes = np.abs(values)
    tie = (values.view(np.int64) & _LOST_BITS) == _HALFWAY
    may: Array = tie | ((sizes < _LEAST_NORMAL) & (sizes > 0))
    return may


@uncounted
def _is_space(byte: int) -> bool:
    return byte == _SPACE or _TAB <= byte <= _RETURN


@compiled
def _trimmed(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    begins, stops = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
    for i in range(len(starts)):
        at, end = np.int64(starts[i]), np.int64(ends[i])
        while at < end and _is_space(data[at]):
            at += 1
        while at < end and _is_space(data[end - 1]):
            end -= 1
        begins[i], stops[i] = at, end
    return begins, stops


@compiled
def _read_floats(data: Array, starts: Array, ends: Array, powers: Array) -> tuple[Array, Array]:
    """(values, outcomes): the exact rules decide for letters, and where one operation does not round correctly."""
    values, found = np.zeros(len(starts), np.float64), np.zeros(len(starts), np.uint8)
    for i in range(len(starts)):
        at, end = starts[i], ends[i]
        negative = at < end and data[at] == _MINUS
        if at < end and (data[at] == _MINUS or data[at] == _PLUS):
            at += 1
        whole, digits, power, after_point = np.uint64(0), 0, 0, False
        while at < end:
            byte = data[at]
            if _ZERO <= byte <= _NINE:
                digits += 1
                power -= after_point
                if whole <= _EXACT:  # beyond it the exact rules decide, whatever follows
                    whole = whole * np.uint64(10) + np.uint64(byte - np.uint8(_ZERO))
            elif byte == _POINT and not after_point:
                after_point = True
            else:
                break
            at += 1
        if at < end and (digits == 0 or (data[at] != _EXPONENT and data[at] != _EXPONENT_CAPITAL)):
            found[i] = _LEFT
            continue
        if digits == 0:
            continue
        if at < end:
            at += 1
            down = at < end and data[at] == _MINUS
            if at < end and (data[at] == _MINUS or data[at] == _PLUS):
                at += 1
            exponent: Any = 0
            first = at
            while at < end and _ZERO <= data[at] <= _NINE:
                if exponent < _EXPONENT_MAX:
                    exponent = exponent * 10 + np.int64(data[at]) - _ZERO
                at += 1
            if at < end or at == first:
                continue
            power += -exponent if down else exponent
        if whole > _EXACT or power > _EXACT_POWER or power < -_EXACT_POWER:
            found[i] = _LEFT
            continue
        size = float(whole) * powers[power] if power >= 0 else float(whole) / powers[-power]
        values[i] = -size if negative else size
        found[i] = _READ
    return values, found
