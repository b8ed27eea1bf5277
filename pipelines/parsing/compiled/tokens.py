"""The compiled loops that find the values of lines: of flat JSON objects, and of delimited records without quotes.

Every line is read as its definition reads it, or not at all. JSON is read as Python's decoder reads it: objects without nested values, whose wanted keys appear
once. A value is then known by its kind, and by its span in the data or its number. Data must end with a line feed: no token holds one, so no loop
leaves the data. Indices are unsigned, since numba takes a signed index below 0 as counted from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, uncounted

#: The kinds of values: null or absent; a text, without or with escapes; a number in digits; one that is known as an int64 or a float64; and two literals.
ABSENT, TEXT, ESCAPED, DIGITS, INTEGER, FLOAT, TRUE, FALSE = range(8)
#: How the numbers of a column are wanted.
AS_DIGITS, AS_INTEGER, AS_FLOAT = range(3)

_ONE, _NO_LINE = np.uint64(1), np.uint64(2**64 - 1)
_TEN = np.uint64(10)
#: Below so many a whole number, and up to so many a power of ten, are exact in a float64: one division or product then rounds once.
_EXACT, _MOST_POWER = np.uint64(1 << 53), 22
_POWERS = np.array([10.0**power for power in range(_MOST_POWER + 1)])
_MOST_DIGITS = 19
_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN, _CLOSE, _FEED = (np.uint8(ord(one)) for one in '"\\,:{}\n')
_SLASH = np.uint8(ord("/"))
_MINUS, _PLUS, _POINT, _ZERO, _NINE = (np.uint8(ord(one)) for one in "-+.09")


@compiled
def find_values(
    data: Array, keys: Array, key_ends: Array, wants: Array, starts: Array, lengths: Array, kinds: Array, integers: Array,
    floats: Array,
) -> int:  # fmt: skip
    """Fill the arrays [columns, lines] with the values of all lines; returns the number of lines, -1 if one is not read.

    Args:
        data: uint8, ending with a line feed.
        keys: the keys of the columns, one after the other, uint8; ``key_ends``: the end of each.
        wants: how the numbers of each column are wanted.
        starts: the first byte of a text or of digits; ``lengths``: their bytes.
        kinds: of values; all 0 before.
        integers: the memory of ``floats``.
    """
    columns = len(wants)
    seen = np.full(columns, -1, np.int64)
    at, end = np.uint64(0), np.uint64(len(data))
    row = 0
    while at < end:
        at = _skip_white(data, at)
        if data[at] != _OPEN or row >= kinds.shape[1]:
            return -1
        at = _skip_white(data, at + _ONE)
        expected = 0
        if data[at] == _CLOSE:
            at += _ONE
        else:
            while True:
                if data[at] != _QUOTE:
                    return -1
                first = at + _ONE
                at = _skip_plain(data, first)
                if data[at] != _QUOTE:
                    return -1
                c = _column_of(data, first, at - first, keys, key_ends, expected)
                at = _skip_white(data, at + _ONE)
                if data[at] != _COLON:
                    return -1
                at = _skip_white(data, at + _ONE)
                if c >= 0:
                    if seen[c] == row:
                        return -1
                    seen[c], expected = row, c + 1
                byte = data[at]
                if byte == _QUOTE:
                    first = at + _ONE
                    at, kind = _skip_text(data, first)
                    if kind < 0:
                        return -1
                    if c >= 0:
                        kinds[c, row], starts[c, row], lengths[c, row] = kind, first, at - first
                    at += _ONE
                elif byte == _MINUS or _ZERO <= byte <= _NINE:
                    first = at
                    at, whole, power, is_whole = _skip_number(data, at)
                    if at == _NO_LINE:
                        return -1
                    if c >= 0:
                        starts[c, row], lengths[c, row] = first, at - first
                        kinds[c, row] = _known(
                            wants[c], byte == _MINUS, whole, power, is_whole, integers, floats, c, row
                        )
                else:
                    at, kind = _skip_literal(data, at)
                    if kind < 0:
                        return -1
                    if c >= 0:
                        kinds[c, row] = kind
                at = _skip_white(data, at)
                byte = data[at]
                at += _ONE
                if byte == _CLOSE:
                    break
                if byte != _COMMA:
                    return -1
                at = _skip_white(data, at)
        at = _skip_white(data, at)
        if data[at] != _FEED:
            return -1
        at += _ONE
        row += 1
    return row


@uncounted
def _known(
    want: int, is_below: bool, whole: Any, power: int, is_whole: bool, integers: Array, floats: Array, c: int, row: int
) -> int:
    """Store a number as it is wanted, if it is exact; returns its kind."""
    if want == AS_INTEGER and is_whole and whole <= np.uint64(2**63 - 1):
        integers[c, row] = -np.int64(whole) if is_below else np.int64(whole)
        return INTEGER
    if want == AS_FLOAT and whole < _EXACT and -_MOST_POWER <= power <= _MOST_POWER:
        number = np.float64(whole)
        number = number / _POWERS[-power] if power < 0 else number * _POWERS[power]
        floats[c, row] = -number if is_below else number
        return FLOAT
    return DIGITS


@compiled
def find_cells(
    data: Array, delimiter: int, column_of: Array, wants: Array, starts: Array, lengths: Array, kinds: Array, integers: Array,
    floats: Array,
) -> int:  # fmt: skip
    """Fill the arrays as :func:`find_values` with the cells of records without quotes, blank ones and lone carriage returns.

    ``column_of``: the column of each cell of a record, -1 for none. Empty cells are texts.
    """
    width, mark = len(column_of), np.uint8(delimiter)
    at, end = np.uint64(0), np.uint64(len(data))
    row = 0
    while at < end:
        if row >= kinds.shape[1] or data[at] == _FEED or (data[at] == 13 and width == 1):
            return -1
        if data[at] == 13 and data[at + _ONE] == _FEED:
            return -1
        for cell in range(width):
            first, c, byte = at, column_of[cell], data[at]
            kind = TEXT
            if c >= 0 and wants[c] != AS_DIGITS and (byte == _MINUS or _ZERO <= byte <= _NINE):
                at, whole, power, is_whole = _skip_number(data, at)
                if at == _NO_LINE or (data[at] != mark and data[at] != _FEED and data[at] != 13):
                    at = first
                else:
                    kind = _known(wants[c], byte == _MINUS, whole, power, is_whole, integers, floats, c, row)
            while data[at] != mark and data[at] != _FEED and data[at] != 13:
                at += _ONE
            if c >= 0:
                kinds[c, row], starts[c, row], lengths[c, row] = kind, first, at - first
            if cell < width - 1:
                if data[at] != mark:
                    return -1
                at += _ONE
        if data[at] == 13:
            at += _ONE
        if data[at] != _FEED:
            return -1
        at += _ONE
        row += 1
    return row


@inlined
def _skip_white(data: Array, at: Any) -> Any:
    while data[at] == 32 or data[at] == 9 or data[at] == 13:
        at += _ONE
    return at


@inlined
def _skip_plain(data: Array, at: Any) -> Any:
    """The position of the first quote, backslash or control character."""
    while data[at] != _QUOTE and data[at] != _BACKSLASH and data[at] >= 32:
        at += _ONE
    return at


@uncounted
def _column_of(data: Array, first: Any, length: Any, keys: Array, key_ends: Array, expected: int) -> int:
    """The column of a key, looked for from the expected one on; -1 for none."""
    columns = len(key_ends)
    for tried in range(columns):
        c = expected + tried
        if c >= columns:
            c -= columns
        begin = np.uint64(key_ends[c - 1]) if c > 0 else np.uint64(0)
        if np.uint64(key_ends[c]) - begin != length:
            continue
        differs = np.uint8(0)
        for k in range(length):
            differs |= data[first + np.uint64(k)] ^ keys[begin + np.uint64(k)]
        if differs == 0:
            return int(c)
    return -1


@uncounted
def _skip_text(data: Array, at: Any) -> tuple[Any, int]:
    """The position of the closing quote, and the kind of the string; -1 if it is not read."""
    kind = TEXT
    while True:
        at = _skip_plain(data, at)
        if data[at] == _QUOTE:
            return at, kind
        if data[at] != _BACKSLASH:
            return at, -1
        kind = ESCAPED
        code, at = _escape(data, at)
        if code < 0:
            return at, -1


@uncounted
def _escape(data: Array, at: Any) -> tuple[int, Any]:
    """The character of the escape at a position, -1 for none, and the position behind it; half of a pair is none."""
    mark = data[at + _ONE]
    behind = at + np.uint64(2)
    if mark in (_QUOTE, _BACKSLASH, _SLASH):
        return int(mark), behind
    if mark == 98:
        return 8, behind
    if mark == 102:
        return 12, behind
    if mark == 110:
        return 10, behind
    if mark == 114:
        return 13, behind
    if mark == 116:
        return 9, behind
    if mark != 117:
        return -1, at
    code = _hexadecimal(data, behind)
    behind += np.uint64(4)
    if 0xD800 <= code < 0xDC00:
        if data[behind] != _BACKSLASH or data[behind + _ONE] != 117:
            return -1, at
        low = _hexadecimal(data, behind + np.uint64(2))
        if not 0xDC00 <= low < 0xE000:
            return -1, at
        return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), behind + np.uint64(6)
    return (-1 if 0xDC00 <= code < 0xE000 else code), behind


@uncounted
def _hexadecimal(data: Array, at: Any) -> int:
    """The number of four digits, -1 for others."""
    found = 0
    for k in range(4):
        byte = int(data[at + np.uint64(k)])
        if 48 <= byte <= 57:
            found = found * 16 + byte - 48
        elif 65 <= byte <= 70 or 97 <= byte <= 102:
            found = found * 16 + (byte | 32) - 87
        else:
            return -1
    return found


@uncounted
def _skip_number(data: Array, at: Any) -> tuple[Any, Any, int, bool]:
    """The position behind a number, or that of no line; its digits as a whole number; the power of ten of that; and whether it has no fraction and exponent.

    The whole number is the largest uint64 if there are too many digits.
    """
    whole, power, digits, is_whole = np.uint64(0), 0, 0, True
    if data[at] == _MINUS:
        at += _ONE
    if data[at] == _ZERO:
        at += _ONE
    elif _ZERO < data[at] <= _NINE:
        while _ZERO <= data[at] <= _NINE:
            whole = whole * _TEN + np.uint64(data[at] - _ZERO)
            digits += 1
            at += _ONE
    else:
        return _NO_LINE, whole, power, is_whole
    if data[at] == _POINT:
        is_whole = False
        at += _ONE
        if not _ZERO <= data[at] <= _NINE:
            return _NO_LINE, whole, power, is_whole
        while _ZERO <= data[at] <= _NINE:
            whole = whole * _TEN + np.uint64(data[at] - _ZERO)
            digits += 1 if whole else 0
            power -= 1
            at += _ONE
    if data[at] == 101 or data[at] == 69:
        is_whole = False
        at += _ONE
        is_below = data[at] == _MINUS
        if is_below or data[at] == _PLUS:
            at += _ONE
        if not _ZERO <= data[at] <= _NINE:
            return _NO_LINE, whole, power, is_whole
        exponent = 0
        while _ZERO <= data[at] <= _NINE:
            exponent = min(exponent * 10 + int(data[at] - _ZERO), 1 << 20)
            at += _ONE
        power += -exponent if is_below else exponent
    return at, (whole if digits <= _MOST_DIGITS else np.uint64(2**64 - 1)), power, is_whole


@uncounted
def _skip_literal(data: Array, at: Any) -> tuple[Any, int]:
    """The position behind ``null``, ``true`` or ``false``, and its kind; -1 for others."""
    two, three, four = np.uint64(2), np.uint64(3), np.uint64(4)
    if data[at] == 110 and data[at + _ONE] == 117 and data[at + two] == 108 and data[at + three] == 108:
        return at + four, ABSENT
    if data[at] == 116 and data[at + _ONE] == 114 and data[at + two] == 117 and data[at + three] == 101:
        return at + four, TRUE
    if data[at] == 102 and data[at + _ONE] == 97 and data[at + two] == 108 and data[at + three] == 115:
        return at + np.uint64(5), FALSE if data[at + four] == 101 else -1
    return at, -1


@compiled
def copy_texts(data: Array, starts: Array, lengths: Array, kinds: Array, offsets: Array, out: Array) -> int:
    """Write the texts of a column one after the other, without escapes, and where each begins and ends; returns their bytes."""
    end = np.uint64(0)
    offsets[0] = 0
    for row in range(len(kinds)):
        if kinds[row] == ESCAPED:
            end = _copy_unescaped(data, np.uint64(starts[row]), np.uint64(starts[row] + lengths[row]), out, end)
        elif kinds[row] != ABSENT:
            at = np.uint64(starts[row])
            for k in range(np.uint64(lengths[row])):
                out[end + k] = data[at + k]
            end += np.uint64(lengths[row])
        offsets[row + 1] = end
    return int(end)


@uncounted
def _copy_unescaped(data: Array, at: Any, stop: Any, out: Array, end: Any) -> Any:
    while at < stop:
        if data[at] != _BACKSLASH:
            out[end] = data[at]
            at, end = at + _ONE, end + _ONE
            continue
        code, at = _escape(data, at)
        if code < 0x80:
            out[end] = code
            end += _ONE
            continue
        size = 2 if code < 0x800 else 3 if code < 0x10000 else 4
        for k in range(size - 1, 0, -1):
            out[end + np.uint64(k)] = 0x80 | (code & 0x3F)
            code >>= 6
        out[end] = code | ((0xF00 >> size) & 0xFF)
        end += np.uint64(size)
    return end
