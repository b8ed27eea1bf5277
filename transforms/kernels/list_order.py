"""Kernels that sort the items of each list.

Every item gets an unsigned 64-bit key that orders as the items do: a number's value, or the first eight bytes of a text,
whose remaining bytes are compared where keys are equal. -0.0 stands before 0.0, and NaN behind every number in either
direction. Sorting moves positions and is stable; short lists, the common case, are sorted by insertion.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, Strings
from transforms.kernels.buffers import positions, spans
from transforms.kernels.compiled import compiled, inlined
from transforms.kernels.lists import lists_of, picked
from transforms.kernels.spans import compare_after_prefix, frozen, prefixes

_SIGN = np.uint64(2**63)
_LAST = np.uint64(2**64 - 1)
#: Up to this many items, insertion beats merging.
_FEW = 24

#: (keys, data, starts, ends) of all items; data, starts and ends are empty for numbers, whose keys say everything.
Keyed = tuple[Array, Array, Array, Array]
_NO_BYTES, _NO_SPANS = frozen(np.empty(0, np.uint8)), frozen(np.empty(0, np.int32))


def sort(column: Column, *, descending: bool) -> Column:
    """The items of each list in order."""
    lists = lists_of(column)
    picks = sorted_positions(positions(lists.offsets), keyed(lists.items, descending=descending), descending)
    return picked(lists, positions(lists.offsets), picks)


def keyed(items: Numbers | Strings, *, descending: bool = False) -> Keyed:
    """The items with their keys, which turn the order around if ``descending``."""
    if isinstance(items, Strings):
        data, starts, ends = spans(items)
        keys = prefixes(data, starts, ends)
        return frozen(~keys if descending else keys), data, starts, ends
    return frozen(number_keys(items.values, descending=descending)), _NO_BYTES, _NO_SPANS, _NO_SPANS


def number_keys(values: Array, *, descending: bool = False) -> Array:
    """Unsigned numbers that order as ``values`` do."""
    keys: Array
    if values.dtype.kind == "f":
        signed = values.view(np.int32 if values.dtype == np.float32 else np.int64).astype(np.int64)
        signed = np.where(signed < 0, np.int64(-1) - (signed & np.int64(2 ** (8 * values.itemsize - 1) - 1)), signed)
        keys = signed.view(np.uint64) ^ _SIGN
    else:
        keys = values.astype(np.int64, copy=False).view(np.uint64) ^ _SIGN
    if descending:
        keys = ~keys
    if values.dtype.kind == "f":
        keys[np.isnan(values)] = _LAST
    return keys


@inlined
def compare(items: Any, i: int, j: int) -> int:
    """-1, 0 or 1 as one item is before, equal to or after another of the same column."""
    key, other = items[0][i], items[0][j]
    if key != other:
        return -1 if key < other else 1
    if len(items[2]) == 0:
        return 0
    order: int = compare_after_prefix(items[1], items[2][i], items[3][i], items[1], items[2][j], items[3][j])
    return order


@inlined
def _is_after(items: Any, key: Any, pick: int, other_key: Any, other: int, descending: bool) -> bool:
    """Whether an item that is before another must be after it."""
    if key != other_key or len(items[2]) == 0:
        return bool(key > other_key)
    order = compare(items, pick, other)
    return order < 0 if descending else order > 0


@inlined
def _insertion_sort(items: Any, keys: Array, picks: Array, begin: int, end: int, descending: bool) -> None:
    for i in range(begin + 1, end):
        key, pick, at = keys[i], picks[i], i
        while at > begin and _is_after(items, keys[at - 1], picks[at - 1], key, pick, descending):
            keys[at], picks[at] = keys[at - 1], picks[at - 1]
            at -= 1
        keys[at], picks[at] = key, pick


@compiled
def _merge_sort(items: Any, keys: Array, picks: Array, begin: int, end: int, descending: bool) -> None:
    for low in range(begin, end, _FEW):
        _insertion_sort(items, keys, picks, low, min(low + _FEW, end), descending)
    spare_keys, spare_picks = np.empty(end - begin, keys.dtype), np.empty(end - begin, picks.dtype)
    width = _FEW
    while width < end - begin:
        for low in range(begin, end, 2 * width):
            middle, high = min(low + width, end), min(low + 2 * width, end)
            i, j = low, middle
            for at in range(low - begin, high - begin):
                if i < middle and (j >= high or not _is_after(items, keys[i], picks[i], keys[j], picks[j], descending)):
                    spare_keys[at], spare_picks[at] = keys[i], picks[i]
                    i += 1
                else:
                    spare_keys[at], spare_picks[at] = keys[j], picks[j]
                    j += 1
        keys[begin:end], picks[begin:end] = spare_keys, spare_picks
        width *= 2


@compiled
def sorted_positions(offsets: Array, items: Any, descending: bool) -> Array:
    """The positions of all items, those of each list in order; equal items stay in theirs.

    ``descending`` as the keys were made; see :func:`keyed`.
    """
    keys, picks = items[0].copy(), np.arange(offsets[-1]).astype(np.int32)
    for row in range(len(offsets) - 1):
        begin, end = offsets[row], offsets[row + 1]
        if end - begin <= _FEW:
            _insertion_sort(items, keys, picks, begin, end, descending)
        else:
            _merge_sort(items, keys, picks, begin, end, descending)
    return picks
