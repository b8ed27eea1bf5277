"""Kernels that keep a part of each text. They change its start and end and move no bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Strings
from transforms.errors import DataError
from transforms.kernels.buffers import spans
from transforms.kernels.compiled import compiled, uncounted
from transforms.kernels.spans import frozen
from transforms.operators.text import WHITE_SPACE

_CODE_POINTS = 0x110000


def strip(column: Column, *, characters: str) -> Column:
    """Each text without the characters at its two ends; white space if none are given."""
    strings = _strings(column)
    stripped = np.zeros(_CODE_POINTS, np.bool_)
    stripped[[ord(character) for character in characters or WHITE_SPACE]] = True
    starts, ends = _strip(*spans(strings), frozen(stripped))
    return Strings(strings.data, starts, ends, strings.valid)


def substring(column: Column, *, start: int, length: int) -> Column:
    """``length`` code points from ``start`` on, or from as many before the end."""
    strings = _strings(column)
    starts, ends = _substring(*spans(strings), start, length)
    return Strings(strings.data, starts, ends, strings.valid)


def _strings(column: Column) -> Strings:
    if not isinstance(column, Strings):
        raise DataError("the argument of a text kernel must be text", value=type(column).__name__)
    return column


@uncounted
def code_point_at(data: Array, at: Any) -> tuple[Any, Any]:
    """The code point that begins at a position, and how many bytes it has."""
    byte = np.int64(data[at])
    if byte < 0x80:
        return byte, 1
    second = np.int64(data[at + 1]) & 0x3F
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | second, 2
    third = np.int64(data[at + 2]) & 0x3F
    if byte < 0xF0:
        return (byte & 0x0F) << 12 | second << 6 | third, 3
    return (byte & 0x07) << 18 | second << 12 | third << 6 | (np.int64(data[at + 3]) & 0x3F), 4


@compiled
def _strip(data: Array, starts: Array, ends: Array, stripped: Array) -> tuple[Array, Array]:
    begins, stops = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    for row in range(len(starts)):
        begin, stop = np.int64(starts[row]), np.int64(ends[row])
        while begin < stop:
            code, size = code_point_at(data, begin)
            if not stripped[code]:
                break
            begin += size
        while begin < stop:
            last = stop - 1
            while (data[last] & 0xC0) == 0x80:
                last -= 1
            if not stripped[code_point_at(data, last)[0]]:
                break
            stop = last
        begins[row], stops[row] = begin, stop
    return begins, stops


@uncounted
def _forward(data: Array, at: Any, end: Any, count: int) -> Any:
    """The position ``count`` code points further on, or the end."""
    while count > 0 and at < end:
        at += 1
        while at < end and (data[at] & 0xC0) == 0x80:
            at += 1
        count -= 1
    return at


@uncounted
def _backward(data: Array, at: Any, begin: Any, count: int) -> Any:
    """The position ``count`` code points back, or the beginning."""
    while count > 0 and at > begin:
        at -= 1
        while (data[at] & 0xC0) == 0x80:
            at -= 1
        count -= 1
    return at


@compiled
def _substring(data: Array, starts: Array, ends: Array, start: int, length: int) -> tuple[Array, Array]:
    begins, stops = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    for row in range(len(starts)):
        first, end = np.int64(starts[row]), np.int64(ends[row])
        begin = _forward(data, first, end, start) if start >= 0 else _backward(data, end, first, -start)
        begins[row], stops[row] = begin, _forward(data, begin, end, length)
    return begins, stops
