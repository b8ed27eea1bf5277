"""Tables of the characters beyond ASCII that a text operator changes; other text needs no Python."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled
from transforms.kernels.spans import frozen
from transforms.kernels.text_parts import code_point_at

_CODE_POINTS = 0x110000
#: Beyond these, no character has case, a decomposition or a combining class.
_TOUCHABLE = (*range(0x80, 0xD800), *range(0xE000, 0x30000))


@cache
def lowered() -> Array:
    """A bool per code point: whether lower case changes it. A final sigma follows from a capital one."""
    return _table(lambda character: character.lower() != character)


@cache
def raised() -> Array:
    """A bool per code point: whether upper case changes it."""
    return _table(lambda character: character.upper() != character)


@cache
def normalized() -> Array:
    """A bool per code point: whether NFKC may change it, move it or compose it with one before."""
    parts = (unicodedata.normalize("NFD", chr(code)) for code in _TOUCHABLE)
    seconds = {text[-1] for text in parts if len(text) > 1}
    return _table(
        lambda character: (
            character in seconds
            or unicodedata.combining(character) != 0
            or unicodedata.normalize("NFKC", character) != character
        )
    )


def _table(touches: Callable[[str], bool]) -> Array:
    table = np.zeros(_CODE_POINTS, np.bool_)
    table[[code for code in _TOUCHABLE if touches(chr(code))]] = True
    return frozen(table)


@compiled
def rows_with(table: Array, data: Array, starts: Array, ends: Array) -> Array:
    """The rows with a character beyond ASCII that the table has."""
    picks = np.empty(len(starts), np.int64)
    count = 0
    for row in range(len(starts)):
        at, end = np.int64(starts[row]), np.int64(ends[row])
        while at < end:
            if data[at] < 0x80:
                at += 1
                continue
            code, size = code_point_at(data, at)
            if table[code]:
                picks[count] = row
                count += 1
                break
            at += size
    return picks[:count].copy()
