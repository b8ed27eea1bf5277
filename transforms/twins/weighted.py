"""Twins of the operators over weighted lists.

Sums go from left to right: ``tf.math.unsorted_segment_sum`` adds a row's items one after another, in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import tensorflow as tf

from transforms.operators.weighted import TINY
from transforms.twins.order import from_rows, in_order, kept, order_keys, places
from transforms.twins.tensors import DenseTensor, WeightedTensor


def weighted_by(ids: tf.RaggedTensor, weights: tf.RaggedTensor) -> WeightedTensor:
    """The items of one list with the numbers of another as weights; lists of other lengths fail."""
    same = tf.debugging.assert_equal(
        ids.row_splits, weights.row_splits, "a list and its weights must have equal lengths"
    )
    with tf.control_dependencies([] if same is None else [same]):
        return WeightedTensor(ids, ids.with_values(_as_weights(_flushed(tf.cast(weights.values, tf.float64)))))


def term_frequency(lists: tf.RaggedTensor, *, relative: bool) -> WeightedTensor:
    """Each value at its first occurrence, with its number of occurrences."""
    items, numbers = tf.unique(lists.values, out_idx=tf.int64)
    base = tf.maximum(tf.size(items, tf.int64), 1)
    pairs, _, counts = tf.unique_with_counts(lists.value_rowids() * base + numbers)
    rows = pairs // base
    weights = tf.cast(counts, tf.float64)
    if relative:
        weights /= tf.cast(tf.gather(lists.row_lengths(), rows), tf.float64)
    distinct = from_rows(tf.gather(items, pairs % base), rows, lists.nrows())
    return WeightedTensor(distinct, distinct.with_values(tf.cast(weights, tf.float32)))


def ids(pairs: WeightedTensor) -> tf.RaggedTensor:
    """The items without their weights."""
    return pairs.ids


def weights(pairs: WeightedTensor) -> tf.RaggedTensor:
    """The weights without their items."""
    return pairs.weights


def top_k(pairs: WeightedTensor, *, k: int) -> WeightedTensor:
    """The k pairs of the greatest weights."""
    bits = tf.bitcast(pairs.weights.values, tf.int32)
    plain = tf.bitcast(tf.where(tf.equal(bits, tf.int32.min), 0, bits), tf.float32)  # -0.0 is no less than 0.0 here
    order = in_order(pairs.ids.value_rowids(), order_keys(plain, descending=True))
    ordered = [each.with_values(tf.gather(each.values, order)) for each in (pairs.ids, pairs.weights)]
    best = places(pairs.ids) < k
    return WeightedTensor(*(kept(each, best) for each in ordered))


def scale_weights(pairs: WeightedTensor, *, factor: float) -> WeightedTensor:
    """Every weight multiplied by ``factor``."""
    return _reweighted(pairs, _wide(pairs) * tf.constant(factor, tf.float64))


def normalize_weights(pairs: WeightedTensor, *, norm: str) -> WeightedTensor:
    """Every weight divided by the norm of its list's weights."""
    values, rows = _wide(pairs), pairs.weights.value_rowids()
    sizes = tf.abs(values)
    if norm == "max":
        whole = _extreme(pairs.weights, sizes, tf.math.unsorted_segment_max)
    else:
        whole = _sum(pairs.weights, sizes if norm == "l1" else sizes * sizes)
        whole = tf.sqrt(whole) if norm == "l2" else whole
    whole = tf.where(tf.equal(whole, 0.0), tf.constant(1.0, tf.float64), whole)
    return _reweighted(pairs, values / tf.gather(whole, rows))


def pool(column: tf.RaggedTensor | WeightedTensor, *, how: str) -> DenseTensor:
    """One number for each list of numbers, or of weights."""
    lists = column.weights if isinstance(column, WeightedTensor) else column
    values = _flushed(tf.cast(lists.values, tf.float64))
    lengths = lists.row_lengths()
    if how in ("sum", "mean"):
        pooled = _sum(lists, values)
        if how == "mean":
            pooled /= tf.cast(tf.maximum(lengths, 1), tf.float64)
    else:
        pooled = _extreme(lists, values, getattr(tf.math, f"unsorted_segment_{how}"))
    pooled = _flushed(pooled)
    pooled = tf.cast(pooled, tf.float32) if lists.dtype == tf.float32 else pooled
    if how == "sum":
        return DenseTensor(pooled)
    return DenseTensor(tf.where(lengths > 0, pooled, tf.zeros([], pooled.dtype)), lengths > 0)


def _sum(lists: tf.RaggedTensor, values: tf.Tensor) -> tf.Tensor:
    return tf.math.unsorted_segment_sum(values, lists.value_rowids(), lists.nrows())


def _extreme(lists: tf.RaggedTensor, values: tf.Tensor, segment_extreme: Callable[..., tf.Tensor]) -> tf.Tensor:
    """NaN where a list holds one; something finite for an empty list."""
    rows, count = lists.value_rowids(), lists.nrows()
    is_nan = tf.math.is_nan(values)
    nans = tf.math.unsorted_segment_sum(tf.cast(is_nan, tf.int32), rows, count)
    best = segment_extreme(tf.where(is_nan, tf.zeros([], tf.float64), values), rows, count)
    return tf.where(nans > 0, tf.constant(float("nan"), tf.float64), best)


def _wide(pairs: WeightedTensor) -> tf.Tensor:
    return _flushed(tf.cast(pairs.weights.values, tf.float64))


def _flushed(values: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.abs(values) < TINY, tf.zeros([], values.dtype), values)


def _as_weights(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(values, tf.float32)


def _reweighted(pairs: WeightedTensor, values: tf.Tensor) -> WeightedTensor:
    return replace(pairs, weights=pairs.weights.with_values(_as_weights(_flushed(values))))
