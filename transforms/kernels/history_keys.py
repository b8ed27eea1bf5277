"""Whole numbers of a short range as keys of a history."""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled


def number_range(rows: tuple[Array, Array], events: tuple[Array, Array], least: int, most: int) -> tuple[Array, Array, int]:  # fmt: skip
    """The numbers of keys of rows and events, in the order of the keys, and how many keys rows have; -1: null, or not among rows.

    Args:
        rows: the keys of rows, and which are not null, empty if none is: int64, bool.
        events: those of events.
        least: the least key of a row.
        most: the greatest.
    """
    numbers = np.full(most - least + 1, -1)
    size = _number(numbers, *rows, least)
    return _looked_up(numbers, *rows, least), _looked_up(numbers, *events, least), size


@compiled
def _number(numbers: Array, keys: Array, valid: Array, least: int) -> int:
    for row in range(len(keys)):
        if len(valid) == 0 or valid[row]:
            numbers[keys[row] - least] = 0
    size = 0
    for place in range(len(numbers)):
        if numbers[place] == 0:
            numbers[place] = size
            size += 1
    return size


@compiled
def _looked_up(numbers: Array, keys: Array, valid: Array, least: int) -> Array:
    out = np.empty(len(keys), np.int64)
    most = least + (len(numbers) - 1)  # the other sum may not fit 64 bits
    for row in range(len(keys)):
        is_known = (len(valid) == 0 or valid[row]) and least <= keys[row] <= most
        out[row] = numbers[keys[row] - least] if is_known else -1
    return out
