"""Kernels over weighted lists."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, RaggedItems, WeightedItems
from transforms.errors import DataError
from transforms.kernels.buffers import positions, take
from transforms.kernels.compiled import compiled, uncounted
from transforms.kernels.list_items import check_same_lengths
from transforms.kernels.list_order import compare, keyed, number_keys, sorted_positions
from transforms.kernels.lists import head, lists_of, picked
from transforms.kernels.numbers import rounded
from transforms.kernels.spans import frozen
from transforms.operators.weighted import NORMS, POOLS, TINY

_FLOAT32 = np.dtype(np.float32)
_SUM, _MEAN, _MAX, _MIN = range(len(POOLS))
_L1, _L2, _ = range(len(NORMS))


def weighted_by(column: Column, weights: Column) -> Column:
    """The items of one list with the numbers of another as weights."""
    ids, numbers = lists_of(column), lists_of(weights)
    check_same_lengths(ids.offsets, numbers.offsets, "its weights", "fill what the weights are made of")
    return WeightedItems(positions(ids.offsets), ids.items, _as_weights(_flushed(_numbers(numbers).astype(np.float64))))


def term_frequency(column: Column, *, relative: bool) -> Column:
    """Each value at its first occurrence, with its number of occurrences."""
    lists = lists_of(column)
    offsets, items = positions(lists.offsets), keyed(lists.items)
    counts = _occurrences(offsets, items, frozen(sorted_positions(offsets, items, False)))
    new_offsets, picks, weights = _counted(offsets, frozen(counts), relative)
    return WeightedItems(new_offsets, take(lists.items, picks), weights.astype(np.float32))


def ids(column: Column) -> Column:
    """The items without their weights."""
    pairs = pairs_of(column)
    return RaggedItems(pairs.offsets, pairs.items)


def weights(column: Column) -> Column:
    """The weights without their items."""
    pairs = pairs_of(column)
    return RaggedItems(pairs.offsets, Numbers(pairs.weights))


def top_k(column: Column, *, k: int) -> Column:
    """The k pairs of the greatest weights."""
    pairs = pairs_of(column)
    offsets = positions(pairs.offsets)
    plain = np.where(pairs.weights == 0, np.float32(0), pairs.weights)  # -0.0 is no less than 0.0 here
    keys = frozen(number_keys(plain, descending=True))
    nothing = frozen(np.empty(0, np.int32))
    order = sorted_positions(offsets, (keys, frozen(np.empty(0, np.uint8)), nothing, nothing), True)
    best = lists_of(head(RaggedItems(offsets, Numbers(order)), n=k))
    return picked(pairs, positions(best.offsets), _numbers(best))


def scale_weights(column: Column, *, factor: float) -> Column:
    """Every weight multiplied by ``factor``."""
    pairs = pairs_of(column)
    with np.errstate(all="ignore"):
        scaled = _flushed(pairs.weights.astype(np.float64)) * factor
    return _reweighted(pairs, _flushed(scaled))


def normalize_weights(column: Column, *, norm: str) -> Column:
    """Every weight divided by the norm of its list's weights."""
    pairs = pairs_of(column)
    plain = frozen(_flushed(pairs.weights.astype(np.float64)))
    return _reweighted(pairs, _flushed(_normalized(positions(pairs.offsets), plain, NORMS.index(norm))))


def pool(column: Column, *, how: str) -> Column:
    """One number for each list of numbers, or of weights."""
    offsets = positions(_offsets_of(column))
    numbers = column.weights if isinstance(column, WeightedItems) else _numbers(lists_of(column))
    pooled = _pooled(offsets, frozen(_flushed(numbers.astype(np.float64))), POOLS.index(how))
    dtype = _FLOAT32 if numbers.dtype == np.float32 else np.dtype(np.float64)
    return Numbers(rounded(_flushed(pooled), dtype), None if how == "sum" else np.diff(offsets) > 0)


def pairs_of(column: Column) -> WeightedItems:
    """A column that must be weighted."""
    if not isinstance(column, WeightedItems):
        raise DataError("the argument of the kernel must be weighted lists", value=type(column).__name__)
    return column


def _offsets_of(column: Column) -> Array:
    return column.offsets if isinstance(column, WeightedItems) else lists_of(column).offsets


def _numbers(lists: RaggedItems) -> Array:
    if not isinstance(lists.items, Numbers):
        raise DataError("the argument of the kernel must be lists of numbers")
    return lists.items.values


def _flushed(values: Array) -> Array:
    """float64 values of its caller's own, those closer to 0 than ``TINY`` made 0.0 in place."""
    values[np.abs(values) < TINY] = 0.0
    return values


def _as_weights(values: Array) -> Array:
    return rounded(values, _FLOAT32)


def _reweighted(pairs: WeightedItems, values: Array) -> WeightedItems:
    return WeightedItems(pairs.offsets, pairs.items, _as_weights(values))


@compiled
def _occurrences(offsets: Array, items: Any, ordered: Array) -> Array:
    """At the first occurrence of each value in its list how often it occurs there, 0 at the others."""
    counts = np.zeros(len(ordered), np.int64)
    for row in range(len(offsets) - 1):
        first = 0
        for i in range(offsets[row], offsets[row + 1]):
            if i == offsets[row] or compare(items, ordered[i - 1], ordered[i]) != 0:
                first = ordered[i]
            counts[first] += 1
    return counts


@compiled
def _counted(offsets: Array, counts: Array, relative: bool) -> tuple[Array, Array, Array]:
    new_offsets, picks = np.empty(len(offsets), np.int32), np.empty(len(counts), np.int32)
    weights = np.empty(len(counts), np.float64)
    at = 0
    new_offsets[0] = 0
    for row in range(len(offsets) - 1):
        size = np.float64(offsets[row + 1] - offsets[row]) if relative else 1.0
        for i in range(offsets[row], offsets[row + 1]):
            if counts[i]:
                picks[at] = i
                weights[at] = counts[i] / size
                at += 1
        new_offsets[row + 1] = at
    return new_offsets, picks[:at], weights[:at]


@uncounted
def _norm(values: Array, begin: int, end: int, norm: int) -> float:
    whole = 0.0
    for i in range(begin, end):
        size = abs(values[i])
        if norm == _L1:
            whole += size
        elif norm == _L2:
            whole += size * size
        elif size > whole or size != size:
            whole = size
            if size != size:
                break
    return math.sqrt(whole) if norm == _L2 else whole


@compiled
def _normalized(offsets: Array, values: Array, norm: int) -> Array:
    divided = np.empty(len(values), np.float64)
    for row in range(len(offsets) - 1):
        whole = _norm(values, offsets[row], offsets[row + 1], norm)
        for i in range(offsets[row], offsets[row + 1]):
            divided[i] = values[i] if whole == 0.0 else values[i] / whole
    return divided


@compiled
def _pooled(offsets: Array, values: Array, how: int) -> Array:
    pooled = np.zeros(len(offsets) - 1, np.float64)
    for row in range(len(offsets) - 1):
        begin, end = offsets[row], offsets[row + 1]
        if begin == end:
            continue
        if how in (_SUM, _MEAN):
            total = 0.0
            for i in range(begin, end):
                total += values[i]
            pooled[row] = total / np.float64(end - begin) if how == _MEAN else total
        else:
            pooled[row] = _extreme(values, begin, end, how == _MAX)
    return pooled


@uncounted
def _extreme(values: Array, begin: int, end: int, greatest: bool) -> Any:
    best = values[begin]
    for i in range(begin, end):
        value = values[i]
        if value != value:
            return value
        if (value > best) if greatest else (value < best):
            best = value
    return best
