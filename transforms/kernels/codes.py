"""Kernels over the codes of dictionary-encoded columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled
from transforms.kernels.spans import frozen


def combined(codes: Array, others: Array, distinct_others: int) -> Array:
    """One int32 code for each pair of codes."""
    pairs: Array = _combined(frozen(codes), frozen(others), np.int32(distinct_others))
    return pairs


def occurring(codes: Array, distinct: int) -> tuple[Array, Array]:
    """(the codes renumbered without gaps, the old number of each new one): only codes that occur keep a number."""
    return _occurring(frozen(codes), distinct)


@compiled
def _combined(codes: Array, others: Array, distinct_others: Any) -> Array:
    pairs = np.empty(len(codes), np.int32)
    for row in range(len(codes)):
        pairs[row] = codes[row] * distinct_others + others[row]
    return pairs


@compiled
def _occurring(codes: Array, distinct: int) -> tuple[Array, Array]:
    number = np.zeros(distinct, np.int32)
    for row in range(len(codes)):
        number[codes[row]] = 1
    present = np.flatnonzero(number)
    for i in range(len(present)):
        number[present[i]] = i
    renumbered = np.empty(len(codes), np.int32)
    for row in range(len(codes)):
        renumbered[row] = number[codes[row]]
    return renumbered, present
