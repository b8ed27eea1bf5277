"""Kernels of the set operators.

Every item gets an unsigned 64-bit key that orders as the items do: an integer's value, or the first eight bytes of a
text. Most comparisons end there; equal keys of text continue with the remaining bytes. The kernels return the *positions*
of the remaining items, so that one kernel serves integers and text. Short lists, the common case, are compared item by
item; long ones are merge-sorted first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from numba import types
from numba.extending import intrinsic

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, RaggedItems, Strings
from transforms.errors import DataError
from transforms.kernels.buffers import positions, spans, take
from transforms.kernels.compiled import compiled, inlined, uncounted
from transforms.kernels.lists import concat
from transforms.kernels.spans import (
    check_load,
    compare_after_prefix,
    equal_after_prefix,
    frozen,
    prefixes,
    trailing_zeros,
)

_SIGN = np.uint64(2**63)
#: Up to this many pairs, comparing all of them beats sorting.
_FEW_PAIRS = 1024
#: Keys that are compared at once.
LANES = 8
_ALL_BITS, _TOP_BIT = np.uint64(2**64 - 1), np.uint64(2**63)


class Keyed(NamedTuple):
    """All items of a column: their keys, and their text; ``data``, ``starts`` and ``ends`` are empty for integers."""

    keys: Array
    data: Array
    starts: Array
    ends: Array


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
    """Each value at its first occurrence."""
    ragged = _ragged(column)
    return _picked(ragged, _first_of_each(positions(ragged.offsets), _keyed(ragged.items)))


def _ragged(column: Column) -> RaggedItems:
    if not isinstance(column, RaggedItems):
        raise DataError("the argument of a set kernel must be lists", value=type(column).__name__)
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
        return Keyed(frozen(items.values.view(np.uint64) ^ _SIGN), _NO_BYTES, _NO_SPANS, _NO_SPANS)
    data, starts, ends = spans(items)
    return Keyed(frozen(prefixes(data, starts, ends)), data, starts, ends)


@inlined
def _compare(keys: Array, data: Array, starts: Array, ends: Array, i: Any, j: Any) -> Any:
    key, other = keys[i], keys[j]
    if key != other:
        return -1 if key < other else 1
    if len(starts) == 0:
        return 0
    return compare_after_prefix(data, starts[i], ends[i], data, starts[j], ends[j])


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _equal_lanes(typing_context: Any, keys: Any, at: Any, key: Any) -> Any:
    """A bit for each of eight keys from a position on that equals ``key``. The caller keeps within the array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(64), LANES)
        array = context.make_array(signature.args[0])(context, builder, args[0])
        check_load(context, builder, array, args[1], LANES)
        pointer = builder.bitcast(builder.gep(array.data, [args[1]]), vector.as_pointer())
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), args[2], ir.Constant(ir.IntType(32), 0))
        spread = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        every = builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), spread)
        equal = builder.icmp_unsigned("==", builder.load(pointer, align=8), every)
        return builder.zext(builder.bitcast(equal, ir.IntType(LANES)), ir.IntType(64))

    return types.uint64(keys, types.int64, types.uint64), codegen


@inlined
def _place_of_equal(keys: Array, key: Any, low: Any, high: Any) -> Any:
    """The position of one of the keys equal to ``key``; -1 without one. All are compared: an early exit would be mispredicted."""
    at: Any = np.int64(low)
    place: Any = np.int64(-1)
    while at < high and at + LANES <= len(keys):
        equal = _equal_lanes(keys, at, key)
        equal &= _ALL_BITS >> np.uint64(64 - min(high - at, LANES))
        place = at + np.int64(trailing_zeros(equal | _TOP_BIT)) if equal else place
        at += LANES
    for j in range(at, high):
        place = j if keys[j] == key else place
    return place


@inlined
def _found(items: Keyed, i: Any, others: Keyed, low: Any, high: Any) -> Any:
    """Whether an item is among others."""
    key = items.keys[i]
    place = _place_of_equal(others.keys, key, low, high)
    found: Any = place >= 0
    if len(items.starts) and high > low:  # without others there is no first one to read
        at = max(place, np.int64(0))
        size = items.ends[i] - items.starts[i]
        surely = (size == others.ends[at] - others.starts[at]) & (size <= 8)
        if found and not surely:
            found = False
            for j in range(low, high):
                if others.keys[j] == key and equal_after_prefix(
                    items.data, items.starts[i], items.ends[i], others.data, others.starts[j], others.ends[j]
                ):
                    found = True
    return found


@inlined
def few_pairs(size: Any, others: Any) -> Any:
    """Whether comparing all pairs beats sorting."""
    return size * max(size, others) <= _FEW_PAIRS


@inlined
def _insert_by_key(keys: Array, picks: Array, begin: Any, end: Any, item: Any) -> None:
    """Put ``item`` in its place among ``picks[begin:end]``, sorted by key, after those of equal key."""
    key = keys[item]
    at = np.int64(end)
    while at > begin and keys[picks[at - 1]] > key:
        picks[at] = picks[at - 1]
        at -= 1
    picks[at] = item


@inlined
def tied(keys: Array, picks: Array, begin: Any, end: Any) -> bool:
    """Whether neighbours among ``picks[begin:end]`` have equal keys, so that the keys do not settle their order."""
    ties = False
    for i in range(begin + 1, end):
        ties |= keys[picks[i]] == keys[picks[i - 1]]
    return ties


@uncounted
def settle(items: Keyed, picks: Array, begin: Any, end: Any) -> Any:
    """Sort ``picks[begin:end]``, sorted by key already, by all bytes and drop repeats; return the new end."""
    keys, data, starts, ends = items
    for i in range(begin + 1, end):
        item, at = picks[i], np.int64(i)
        while at > begin and _compare(keys, data, starts, ends, picks[at - 1], item) > 0:
            picks[at] = picks[at - 1]
            at -= 1
        picks[at] = item
    return _drop_repeats(keys, data, starts, ends, picks, begin, end)


@inlined
def _drop_repeats(keys: Array, data: Array, starts: Array, ends: Array, picks: Array, begin: Any, end: Any) -> Any:
    """Keep the first of equal neighbours among the sorted ``picks[begin:end]``; return the new end."""
    kept = np.int64(begin)
    for i in range(begin, end):
        item = picks[i]
        if kept == begin or _compare(keys, data, starts, ends, picks[kept - 1], item) != 0:
            picks[kept] = item
            kept += 1
    return kept


@compiled
def _merge_sort(items: Keyed, picks: Array, spare: Array) -> None:
    """Sort positions by their items, stably, in place."""
    keys, data, starts, ends = items
    width = 1
    while width < len(picks):
        for low in range(0, len(picks), 2 * width):
            middle, high = min(low + width, len(picks)), min(low + 2 * width, len(picks))
            i, j = low, middle
            for at in range(low, high):
                if j >= high or (i < middle and _compare(keys, data, starts, ends, picks[i], picks[j]) <= 0):
                    spare[at] = picks[i]
                    i += 1
                else:
                    spare[at] = picks[j]
                    j += 1
        picks[:] = spare
        width *= 2


@compiled
def _in_order(items: Keyed, begin: Any, end: Any) -> Array:
    picks = np.arange(begin, end)
    _merge_sort(items, picks, np.empty_like(picks))
    return picks


@compiled
def _distinct_of_many(items: Keyed, begin: Any, end: Any, picks: Array, at: Any) -> Any:
    """Write the sorted distinct items of a long list from ``picks[at]`` on; return where they end."""
    keys, data, starts, ends = items
    picks[at : at + end - begin] = _in_order(items, begin, end)
    return _drop_repeats(keys, data, starts, ends, picks, at, at + end - begin)


@compiled
def _sorted_unique(offsets: Array, items: Keyed) -> tuple[Array, Array]:
    keys = items.keys
    new_offsets, picks = np.empty(len(offsets), np.int32), np.empty(len(keys), np.int32)
    at = np.int64(0)
    new_offsets[0] = 0
    for row in range(len(offsets) - 1):
        begin, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        if few_pairs(end - begin, 0):
            for i in range(end - begin):
                _insert_by_key(keys, picks, at, at + i, begin + i)
            first, at = at, at + end - begin
            if tied(keys, picks, first, at):
                at = settle(items, picks, first, at)
        else:
            at = _distinct_of_many(items, begin, end, picks, at)
        new_offsets[row + 1] = at
    return new_offsets, picks[:at]


@compiled
def sift_many(
    items: Keyed, begin: Any, end: Any, others: Keyed, low: Any, high: Any, keep_found: bool, picks: Array, at: Any
) -> Any:
    """As :func:`sift_few`, for long lists: both are sorted, then walked side by side."""
    keys, data, starts, ends = items
    other_keys, other_data, other_starts, other_ends = others
    stop = _distinct_of_many(items, begin, end, picks, at)
    sorted_others = _in_order(others, low, high)
    j, kept = 0, at
    for i in range(at, stop):
        item, order = picks[i], 1
        while j < len(sorted_others):
            other = sorted_others[j]
            if keys[item] != other_keys[other]:
                order = -1 if keys[item] < other_keys[other] else 1
            elif len(starts) == 0:
                order = 0
            else:
                order = compare_after_prefix(
                    data, starts[item], ends[item], other_data, other_starts[other], other_ends[other]
                )
            if order <= 0:
                break
            j += 1
        found = j < len(sorted_others) and order == 0
        if found == keep_found:
            picks[kept] = item
            kept += 1
    return kept


@inlined
def sift_few(
    items: Keyed, begin: Any, end: Any, others: Keyed, low: Any, high: Any, keep_found: bool, picks: Array, at: Any
) -> Any:
    """The items of one list that are found (or not found) in another, sorted by key: see :func:`tied`, :func:`settle`.

    Their positions go to ``picks`` from ``at`` on, which needs one slot more than there are items; return where they end.
    """
    stop = np.int64(at)
    for i in range(begin, end):
        picks[stop] = i
        stop += keep_found == _found(items, i, others, low, high)
    for i in range(at + 1, stop):
        _insert_by_key(items.keys, picks, at, i, picks[i])
    return stop


@compiled
def _sift(offsets: Array, items: Keyed, other_offsets: Array, others: Keyed, keep_found: bool) -> tuple[Array, Array]:
    keys = items.keys
    new_offsets, picks = np.empty(len(offsets), np.int32), np.empty(len(keys) + 1, np.int32)
    at = np.int64(0)
    new_offsets[0] = 0
    for row in range(len(offsets) - 1):
        begin, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        low, high = np.int64(other_offsets[row]), np.int64(other_offsets[row + 1])
        if few_pairs(end - begin, high - low):
            first = at
            at = sift_few(items, begin, end, others, low, high, keep_found, picks, at)
            if tied(keys, picks, first, at):
                at = settle(items, picks, first, at)
        else:
            at = sift_many(items, begin, end, others, low, high, keep_found, picks, at)
        new_offsets[row + 1] = at
    return new_offsets, picks[:at]


@compiled
def _first_of_each(offsets: Array, items: Keyed) -> tuple[Array, Array]:
    keys, data, starts, ends = items
    new_offsets, picks = np.empty(len(offsets), np.int32), np.empty(len(keys), np.int32)
    at = np.int64(0)
    new_offsets[0] = 0
    for row in range(len(offsets) - 1):
        begin, end = offsets[row], offsets[row + 1]
        first = at
        if (end - begin) * (end - begin) <= _FEW_PAIRS:
            for i in range(begin, end):
                known = False
                for j in range(first, at):
                    if keys[i] == keys[picks[j]] and _compare(keys, data, starts, ends, i, picks[j]) == 0:
                        known = True
                        break
                if not known:
                    picks[at] = i
                    at += 1
        else:
            ordered = _in_order(items, begin, end)
            for i in range(len(ordered)):
                if i == 0 or _compare(keys, data, starts, ends, ordered[i - 1], ordered[i]) != 0:
                    picks[at] = ordered[i]
                    at += 1
            picks[first:at] = np.sort(picks[first:at])
        new_offsets[row + 1] = at
    return new_offsets, picks[:at]
