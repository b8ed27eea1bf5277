"""Kernels that count the common values of two lists.

Short lists, the common case, are compared item by item; a batch with a long one uses the set kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers
from transforms.kernels.buffers import positions
from transforms.kernels.compiled import compiled, inlined
from transforms.kernels.list_order import keyed
from transforms.kernels.lists import lists_of
from transforms.kernels.sets import intersect, unique
from transforms.kernels.spans import compare_after_prefix

#: Up to this many items, comparing all pairs beats sorting.
_FEW = 32


def overlap_count(column: Column, others: Column) -> Column:
    """The number of distinct values in both lists of each row."""
    if _all_short(column, others):
        return Numbers(_compared(column, others)[0])
    return Numbers(_sizes(intersect(column, others)))


def jaccard(column: Column, others: Column) -> Column:
    """Distinct values in both lists of each row divided by those in either; 0 where both are empty."""
    if _all_short(column, others):
        both, either = _compared(column, others)
    else:
        both = _sizes(intersect(column, others))
        either = _sizes(unique(column)) + _sizes(unique(others)) - both
    return Numbers((both / np.maximum(either, 1)).astype(np.float32))


def _sizes(column: Column) -> Array:
    return np.diff(lists_of(column).offsets).astype(np.int64)


def _all_short(*columns: Column) -> bool:
    return all(int(_sizes(column).max(initial=0)) <= _FEW for column in columns)


def _compared(column: Column, others: Column) -> tuple[Array, Array]:
    left, right = lists_of(column), lists_of(others)
    counts: tuple[Array, Array] = _count_pairs(
        positions(left.offsets), keyed(left.items), positions(right.offsets), keyed(right.items)
    )
    return counts


@inlined
def _found(items: Any, i: int, others: Any, begin: int, end: int) -> bool:
    """Whether item ``i`` is among the others from ``begin`` to ``end``."""
    for j in range(begin, end):
        if items[0][i] != others[0][j]:
            continue
        if len(items[2]) == 0:
            return True
        if compare_after_prefix(items[1], items[2][i], items[3][i], others[1], others[2][j], others[3][j]) == 0:
            return True
    return False


@compiled
def _count_pairs(offsets: Array, items: Any, other_offsets: Array, others: Any) -> tuple[Array, Array]:
    """(distinct values in both lists, in either list) of each row."""
    both, either = np.zeros(len(offsets) - 1, np.int64), np.zeros(len(offsets) - 1, np.int64)
    for row in range(len(offsets) - 1):
        begin, low, high = offsets[row], other_offsets[row], other_offsets[row + 1]
        for i in range(begin, offsets[row + 1]):
            if not _found(items, i, items, begin, i):
                either[row] += 1
                both[row] += _found(items, i, others, low, high)
        for j in range(low, high):
            either[row] += not _found(others, j, others, low, j)
        either[row] -= both[row]
    return both, either
