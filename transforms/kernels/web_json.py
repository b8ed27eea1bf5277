"""Compiled parts of ``json_extract``: one pass over a document that checks it whole and remembers the value at a path.

The grammar is that of :mod:`transforms.operators.json_path`. A path is (indices, name_ends, names): for each step the
position of an item, or -1 and the bytes of a member's name. Positions of -1 say that a document is malformed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, uncounted
from transforms.kernels.web_urls import HEX, is_digit
from transforms.operators.json_path import DEPTH_MAX

_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _PLUS, _DOT = (ord(sign) for sign in '"\\,:-+.')
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = (ord(sign) for sign in "{}[]")
_U, _E, _N = ord("u"), ord("e"), ord("n")
#: What a backslash and a byte stand for; 0 where they stand for nothing.
_ESCAPED = np.zeros(256, np.uint8)
for _sign, _means in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPED[_sign] = _means
_WORDS = np.frombuffer(b"true false null ", np.uint8)


@uncounted
def _skip_space(data: Array, at: Any, end: Any) -> Any:
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@uncounted
def _code_unit(data: Array, at: Any, end: Any) -> Any:
    """The number that four hexadecimal digits spell; -1 if they are not there."""
    if at + 4 > end:
        return np.int64(-1)
    unit = np.int64(0)
    for i in range(at, at + 4):
        if HEX[data[i]] < 0:
            return np.int64(-1)
        unit = 16 * unit + HEX[data[i]]
    return unit


@uncounted
def _string_end(data: Array, at: Any, end: Any) -> Any:
    """The end, after its quote, of a string that must begin here."""
    if at >= end or data[at] != _QUOTE:
        return np.int64(-1)
    at += 1
    while at < end and data[at] != _QUOTE:
        if data[at] < 32:
            return np.int64(-1)
        if data[at] == _BACKSLASH:
            at += 1
            if at == end:
                return np.int64(-1)
            if data[at] == _U:
                if _code_unit(data, at + 1, end) < 0:
                    return np.int64(-1)
                at += 4
            elif _ESCAPED[data[at]] == 0:
                return np.int64(-1)
        at += 1
    return at + 1 if at < end else np.int64(-1)


@uncounted
def _digits_end(data: Array, at: Any, end: Any) -> Any:
    while at < end and is_digit(data[at]):
        at += 1
    return at


@uncounted
def _number_end(data: Array, at: Any, end: Any) -> Any:
    if data[at] == _MINUS:
        at += 1
    whole = _digits_end(data, at, end)
    if whole == at or (data[at] == 48 and whole > at + 1):
        return np.int64(-1)
    at = whole
    if at < end and data[at] == _DOT:
        fraction = _digits_end(data, at + 1, end)
        if fraction == at + 1:
            return np.int64(-1)
        at = fraction
    if at < end and (data[at] | 32) == _E:
        at += 1
        if at < end and (data[at] == _PLUS or data[at] == _MINUS):
            at += 1
        exponent = _digits_end(data, at, end)
        return exponent if exponent > at else np.int64(-1)
    return at


@uncounted
def _scalar_end(data: Array, at: Any, end: Any) -> Any:
    """The end of a string, number, true, false or null that must begin here."""
    byte = data[at]
    if byte == _QUOTE:
        return _string_end(data, at, end)
    if byte == _MINUS or is_digit(byte):
        return _number_end(data, at, end)
    word = 0 if byte == _WORDS[0] else 5 if byte == _WORDS[5] else 11
    while _WORDS[word] != 32:
        if at == end or data[at] != _WORDS[word]:
            return np.int64(-1)
        at += 1
        word += 1
    return at


@uncounted
def _unquote(data: Array, at: Any, end: Any, texts: Array, to: Any) -> Any:
    """Write the text of a string, given without quotes, and say where it ends; -1 if it has half a surrogate pair."""
    while at < end:
        if data[at] != _BACKSLASH:
            texts[to] = data[at]
            at += 1
            to += 1
            continue
        if data[at + 1] != _U:
            texts[to] = _ESCAPED[data[at + 1]]
            at += 2
            to += 1
            continue
        point = _code_unit(data, at + 2, end)
        at += 6
        if 0xD800 <= point < 0xE000:
            low = np.int64(-1)
            if point < 0xDC00 and at + 1 < end and data[at] == _BACKSLASH and data[at + 1] == _U:
                low = _code_unit(data, at + 2, end)
            if not 0xDC00 <= low < 0xE000:
                return np.int64(-1)
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
            at += 6
        to = _write_utf8(point, texts, to)
    return to


@uncounted
def _write_utf8(point: Any, texts: Array, to: Any) -> Any:
    if point < 0x80:
        texts[to] = point
        return to + 1
    size = 2 if point < 0x800 else 3 if point < 0x10000 else 4
    for i in range(size - 1, 0, -1):
        texts[to + i] = 0x80 | (point & 0x3F)
        point >>= 6
    texts[to] = ((0xF00 >> size) & 0xFF) | point
    return to + size


@uncounted
def _is_member(data: Array, start: Any, end: Any, names: Array, name_start: Any, name_end: Any, scratch: Array) -> bool:
    """Whether a string, given with its quotes, spells this name. An escape is never shorter than what it spells."""
    size = name_end - name_start
    if end - 2 - start < size or end - 2 - start > 6 * size:
        return False
    if _unquote(data, start + 1, end - 1, scratch, 0) != size:
        return False
    for i in range(size):  # noqa: SIM110 - numba compiles no generators
        if scratch[i] != names[name_start + i]:
            return False
    return True


@inlined
def _child_on_path(
    data: Array,
    at: Any,
    end: Any,
    levels: Array,
    step: Any,
    indices: Array,
    name_ends: Array,
    names: Array,
    scratch: Array,
) -> tuple[Any, Any]:
    """(Where the next child's value begins, behind its name if it has one; whether the path leads into it)."""
    leads = levels[step, 2] == 1
    if levels[step, 0] == _CLOSE_LIST:
        return at, leads and levels[step, 1] == indices[step]
    name = _skip_space(data, at, end)
    at = _string_end(data, name, end)
    if at < 0:
        return at, False
    if leads:
        leads = indices[step] < 0 and _is_member(data, name, at, names, name_ends[step], name_ends[step + 1], scratch)
    at = _skip_space(data, at, end)
    return (at + 1 if at < end and data[at] == _COLON else np.int64(-1)), leads


@uncounted
def _value_at(
    data: Array, start: Any, end: Any, indices: Array, name_ends: Array, names: Array, levels: Array, scratch: Array
) -> tuple[Any, Any]:
    """The span of the value at the path in one document; (-1, -1) if it is absent or the document malformed.

    ``levels`` has for each level the closing byte, how many children came before, and 1 where the path leads into it.
    """
    absent = (np.int64(-1), np.int64(-1))
    found, found_end, found_depth = np.int64(-1), np.int64(-1), -1
    depth, at, on_path = 0, start, True  # on_path: the first `depth` steps lead to the value that begins here
    while True:
        at = _skip_space(data, at, end)
        if at == end:
            return absent
        if on_path and depth == len(indices):
            found, found_end, found_depth = at, np.int64(-1), depth
        opens = data[at] == _OPEN_OBJECT or data[at] == _OPEN_LIST
        if opens:
            if depth == DEPTH_MAX:
                return absent
            levels[depth, 0] = _CLOSE_OBJECT if data[at] == _OPEN_OBJECT else _CLOSE_LIST
            levels[depth, 1], levels[depth, 2] = 0, on_path and depth < len(indices)
            at = _skip_space(data, at + 1, end)
            opens = at == end or data[at] != levels[depth, 0]
            depth, at = (depth + 1, at) if opens else (depth, at + 1)
        else:
            at = _scalar_end(data, at, end)
            if at < 0:
                return absent
        while not opens:  # a value has ended: what contains it ends as well, or goes on behind a comma
            if found >= 0 and found_end < 0 and depth == found_depth:
                found_end = at
            at = _skip_space(data, at, end)
            if depth == 0:
                return (found, found_end) if at == end else absent
            if at == end or (data[at] != levels[depth - 1, 0] and data[at] != _COMMA):
                return absent
            opens = data[at] == _COMMA
            levels[depth - 1, 1] += 1
            depth -= not opens
            at += 1
        at, on_path = _child_on_path(data, at, end, levels, depth - 1, indices, name_ends, names, scratch)
        if at < 0:
            return absent
        if on_path:
            found = np.int64(-1)  # of members with one name the last counts


@compiled
def values_at(
    data: Array, starts: Array, ends: Array, indices: Array, name_ends: Array, names: Array
) -> tuple[Array, Array]:
    """The span of each document's value at the path; -1 where it is absent or null."""
    begins, stops = np.full(len(starts), -1, np.int32), np.full(len(starts), -1, np.int32)
    levels, scratch = np.zeros((DEPTH_MAX, 3), np.int64), np.empty(6 * len(names) + 4, np.uint8)
    for row in range(len(starts)):
        begin, stop = _value_at(
            data, np.int64(starts[row]), np.int64(ends[row]), indices, name_ends, names, levels, scratch
        )
        if begin >= 0 and data[begin] != _N:
            begins[row], stops[row] = begin, stop
    return begins, stops


@compiled
def unquoted(data: Array, starts: Array, ends: Array, total: int) -> tuple[Array, Array, Array, Array]:
    """(data, starts, ends, valid) of values of ``total`` bytes: strings without quotes and escapes, other values as they are."""
    texts, valid = np.empty(total, np.uint8), starts >= 0
    begins, stops = np.zeros(len(starts), np.int32), np.zeros(len(starts), np.int32)
    to = np.int64(0)
    for row in range(len(starts)):
        if not valid[row]:
            continue
        start, end = np.int64(starts[row]), np.int64(ends[row])
        stop = to + end - start
        if data[start] == _QUOTE:
            stop = _unquote(data, start + 1, end - 1, texts, to)
        else:
            texts[to:stop] = data[start:end]
        valid[row] = stop >= 0
        if valid[row]:
            begins[row], stops[row] = to, stop
            to = stop
    return texts[:to], begins, stops, valid
