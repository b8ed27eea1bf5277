"""Kernels of the set operators.

Every item gets an unsigned 64-bit key that orders as the items do: an integer's value, or the first eight bytes of a
text. Most comparisons end there; equal keys of text go on to the remaining bytes. The kernels yield the *positions*
of the items that stay, so that one kernel serves integers and text. Short lists, the rule, are compared item by item;
long ones are merge-sorted first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.columns import Array, Column, Numbers, RaggedItems, Strings
from transforms.errors import DataError
from transforms.kernels.buffers import positions, spans, take
from transforms.kernels.compiled import compiled, inlined
from transforms.kernels.ragged import concat
from transforms.kernels.spans import compare_after_prefix, frozen, prefixes

_SIGN = np.uint64(2**63)
#: Up to this many pairs, comparing all of them beats sorting.
_FEW_PAIRS = 1024

#: (keys, data, starts, ends) of all items; data, starts and ends are empty for integers, whose keys say everything.
Keyed = tuple[Array, Array, Array, Array]

_NO_BYTES, _NO_SPANS = frozen(np.empty(0, np.uint8)), frozen(np.empty(0, np.int32))


def intersect(*columns: Column) -> Column:
    """The common values of each row's lists, sorted."""
    first = _ragged(columns[0])
    if len(columns) == 1:
        return _picked(first, _sorted_unique(positions(first.offsets), _keyed(first.items)))
    for column in columns[1:]:
        first = _sifted(first, _ragged(column), keep_found=True)
    return first


def union(*columns: Column) -> Column:
    """All values of each row's lists, sorted."""
    joined = _ragged(concat(*columns))
    return _picked(joined, _sorted_unique(positions(joined.offsets), _keyed(joined.items)))


def difference(column: Column, others: Column) -> Column:
    """The values of the first list that the second lacks, sorted."""
    return _sifted(_ragged(column), _ragged(others), keep_found=False)


def unique(column: Column) -> Column:
    """Each value where it first stands."""
    ragged = _ragged(column)
    return _picked(ragged, _first_of_each(positions(ragged.offsets), _keyed(ragged.items)))


def _ragged(column: Column) -> RaggedItems:
    if not isinstance(column, RaggedItems):
        raise DataError("a set kernel was given something that is not a list", value=type(column).__name__)
    return column


def _picked(ragged: RaggedItems, parts: tuple[Array, Array]) -> RaggedItems:
    offsets, picks = parts
    return RaggedItems(offsets, take(ragged.items, picks))


def _sifted(left: RaggedItems, right: RaggedItems, *, keep_found: bool) -> RaggedItems:
    return _picked(
        left,
        _sift(positions(left.offsets), _keyed(left.items), positions(right.offsets), _keyed(right.items), keep_found),
    )


def _keyed(items: Numbers | Strings) -> Keyed:
    if isinstance(items, Numbers):
        return frozen(items.values.view(np.uint64) ^ _SIGN), _NO_BYTES, _NO_SPANS, _NO_SPANS
    data, starts, ends = spans(items)
    return frozen(prefixes(data, starts, ends)), data, starts, ends


@inlined
def _compare(left: Any, i: int, right: Any, j: int) -> int:
    key, other = left[0][i], right[0][j]
    if key != other:
        return -1 if key < other else 1
    if len(left[2]) == 0:
        return 0
    order: int = compare_after_prefix(left[1], left[2][i], left[3][i], right[1], right[2][j], right[3][j])
    return order


@inlined
def _found(keyed: Any, i: int, others: Any, begin: int, end: int) -> bool:
    key, keys = keyed[0][i], others[0]
    for j in range(begin, end):  # noqa: SIM110 - numba compiles no generators
        if key == keys[j] and _compare(keyed, i, others, j) == 0:
            return True
    return False


@inlined
def _insert(keyed: Any, picks: Array, begin: int, end: int, item: int) -> None:
    """Put ``item`` in its place among the sorted ``picks[begin:end]``, behind its equals."""
    keys = keyed[0]
    key = keys[item]
    at = end
    while at > begin:
        other = picks[at - 1]
        if keys[other] < key or (keys[other] == key and _compare(keyed, other, keyed, item) <= 0):
            break
        picks[at] = other
        at -= 1
    picks[at] = item


@inlined
def _drop_repeats(keyed: Any, picks: Array, begin: int, end: int) -> int:
    """Keep the first of equal neighbours among ``picks[begin:end]``; return the new end."""
    keys = keyed[0]
    kept = begin
    for i in range(begin, end):
        item = picks[i]
        if kept > begin:
            last = picks[kept - 1]
            if keys[last] == keys[item] and _compare(keyed, last, keyed, item) == 0:
                continue
        picks[kept] = item
        kept += 1
    return kept


@compiled
def _merge_sort(keyed: Any, items: Array, spare: Array) -> None:
    """Sort positions by their items, stably, in place."""
    width = 1
    while width < len(items):
        for low in range(0, len(items), 2 * width):
            middle, high = min(low + width, len(items)), min(low + 2 * width, len(items))
            i, j = low, middle
            for at in range(low, high):
                if j >= high or (i < middle and _compare(keyed, items[i], keyed, items[j]) <= 0):
                    spare[at] = items[i]
                    i += 1
                else:
                    spare[at] = items[j]
                    j += 1
        items[:] = spare
        width *= 2


@compiled
def _in_order(keyed: Any, begin: int, end: int) -> Array:
    items = np.arange(begin, end)
    _merge_sort(keyed, items, np.empty_like(items))
    return items


@compiled
def _distinct_in_order(keyed: Any, begin: int, end: int, picks: Array, at: int) -> int:
    """Write the sorted distinct items of a list from ``picks[at]`` on; return where they end."""
    size = end - begin
    if size * size <= _FEW_PAIRS:
        for i in range(size):
            _insert(keyed, picks, at, at + i, begin + i)
    else:
        picks[at : at + size] = _in_order(keyed, begin, end)
    return _drop_repeats(keyed, picks, at, at + size)


@compiled
def _sorted_unique(offsets: Array, keyed: Any) -> tuple[Array, Array]:
    new_offsets, picks = np.empty(len(offsets), np.int32), np.empty(len(keyed[0]), np.int32)
    at = 0
    new_offsets[0] = 0
    for row in range(len(offsets) - 1):
        at = _distinct_in_order(keyed, offsets[row], offsets[row + 1], picks, at)
        new_offsets[row + 1] = at
    return new_offsets, picks[:at]


@compiled
def _sift_sorted(
    keyed: Any, begin: int, end: int, others: Any, low: int, high: int, keep_found: bool, picks: Array, at: int
) -> int:
    """The long way of :func:`_sift`: both lists sorted, then walked side by side."""
    stop = _distinct_in_order(keyed, begin, end, picks, at)
    sorted_others = _in_order(others, low, high)
    j, kept = 0, at
    for i in range(at, stop):
        order = 1
        while j < len(sorted_others):
            order = _compare(keyed, picks[i], others, sorted_others[j])
            if order <= 0:
                break
            j += 1
        found = j < len(sorted_others) and order == 0
        if found == keep_found:
            picks[kept] = picks[i]
            kept += 1
    return kept


@compiled
def _sift(offsets: Array, keyed: Any, other_offsets: Array, others: Any, keep_found: bool) -> tuple[Array, Array]:
    """The items that are found (or not found) in the other list of their row, sorted, each once."""
    new_offsets, picks = np.empty(len(offsets), np.int32), np.empty(len(keyed[0]), np.int32)
    at = 0
    new_offsets[0] = 0
    for row in range(len(offsets) - 1):
        begin, end, low, high = offsets[row], offsets[row + 1], other_offsets[row], other_offsets[row + 1]
        size = end - begin
        if size * max(high - low, size) <= _FEW_PAIRS:
            stop = at
            for i in range(begin, end):
                if _found(keyed, i, others, low, high) == keep_found:
                    _insert(keyed, picks, at, stop, i)
                    stop += 1
            at = _drop_repeats(keyed, picks, at, stop)
        else:
            at = _sift_sorted(keyed, begin, end, others, low, high, keep_found, picks, at)
        new_offsets[row + 1] = at
    return new_offsets, picks[:at]


@compiled
def _first_of_each(offsets: Array, keyed: Any) -> tuple[Array, Array]:
    new_offsets, picks = np.empty(len(offsets), np.int32), np.empty(len(keyed[0]), np.int32)
    at = 0
    new_offsets[0] = 0
    for row in range(len(offsets) - 1):
        begin, end = offsets[row], offsets[row + 1]
        first = at
        if (end - begin) * (end - begin) <= _FEW_PAIRS:
            for i in range(begin, end):
                known = False
                for j in range(first, at):
                    if keyed[0][i] == keyed[0][picks[j]] and _compare(keyed, i, keyed, picks[j]) == 0:
                        known = True
                        break
                if not known:
                    picks[at] = i
                    at += 1
        else:
            ordered = _in_order(keyed, begin, end)
            for i in range(len(ordered)):
                if i == 0 or _compare(keyed, ordered[i - 1], keyed, ordered[i]) != 0:
                    picks[at] = ordered[i]
                    at += 1
            picks[first:at] = np.sort(picks[first:at])
        new_offsets[row + 1] = at
    return new_offsets, picks[:at]
