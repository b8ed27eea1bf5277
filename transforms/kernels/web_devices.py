"""Compiled part of ``device_model``: the steps of :mod:`transforms.operators.devices` in one pass over the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, uncounted
from transforms.operators.devices import MAKERS

_SPACE, _MINUS, _SLASH, _UNDERSCORE = ord(" "), ord("-"), ord("/"), ord("_")
_BUILD = np.frombuffer(b" build", np.uint8)
_MAKERS = np.frombuffer("".join(MAKERS).encode(), np.uint8)
_MAKER_ENDS = np.cumsum([0, *(len(maker) for maker in MAKERS)])


@compiled
def _is_space(byte: Any) -> Any:
    return byte in (_SPACE, _UNDERSCORE) or np.uint8(9) <= byte <= np.uint8(13)


@uncounted
def _same(texts: Array, start: Any, end: Any, word: Array, word_start: Any, word_end: Any) -> bool:
    """Whether a text begins with a word."""
    size = word_end - word_start
    if size > end - start:
        return False
    for i in range(size):  # noqa: SIM110 - numba compiles no generators
        if texts[start + i] != word[word_start + i]:
            return False
    return True


@uncounted
def _spelled(data: Array, start: Any, end: Any, texts: Array, to: Any) -> Any:
    """Write a text in lower case, with one space for each run of white space, up to the first slash; its new end."""
    begin, after_space = to, False
    for at in range(start, end):
        byte = data[at]
        if byte == _SLASH:
            if to - begin >= 6 and _same(texts, to - 6, to, _BUILD, 0, 6):
                to -= 6
            break
        if _is_space(byte):
            if not after_space:
                texts[to] = _SPACE
                to += 1
            after_space = True
            continue
        after_space = False
        texts[to] = byte | np.uint8(32) if np.uint8(65) <= byte <= np.uint8(90) else byte
        to += 1
    return to


@uncounted
def _after_maker(texts: Array, start: Any, end: Any) -> Any:
    """Behind a maker's name and what parts it from the next word; ``start`` if none stands there."""
    for maker in range(len(_MAKER_ENDS) - 1):
        if _same(texts, start, end, _MAKERS, _MAKER_ENDS[maker], _MAKER_ENDS[maker + 1]):
            name_end = start + _MAKER_ENDS[maker + 1] - _MAKER_ENDS[maker]
            at = name_end
            while at < end and (texts[at] == _SPACE or texts[at] == _MINUS):
                at += 1
            if at > name_end:
                return at
    return start


@compiled
def models(data: Array, starts: Array, ends: Array, total: int) -> tuple[Array, Array, Array]:
    """(data, starts, ends) of the canonical device strings, made of ``total`` bytes."""
    texts = np.empty(total, np.uint8)
    begins, stops = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    to = np.int64(0)
    for row in range(len(starts)):
        begin, end = to, _spelled(data, starts[row], ends[row], texts, to)
        to = end
        begin += begin < end and texts[begin] == _SPACE
        end -= begin < end and texts[end - 1] == _SPACE
        at, ahead = np.int64(-1), begin
        while ahead != at:
            at = ahead
            if at < end and np.uint8(97) <= texts[at] <= np.uint8(122):
                begin = at
            ahead = _after_maker(texts, at, end)
        begins[row], stops[row] = begin, end
    return texts[:to], begins, stops
