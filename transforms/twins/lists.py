"""Twins of the operators over lists as sequences."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from transforms.twins.order import from_rows, in_order, kept, order_keys, places
from transforms.twins.tensors import DenseTensor, VectorTensor

Value = bool | int | float | str


def concat(*lists: tf.RaggedTensor) -> tf.RaggedTensor:
    """The lists of each row one after another."""
    return tf.concat(lists, axis=1) if len(lists) > 1 else lists[0]


def head(lists: tf.RaggedTensor, *, n: int) -> tf.RaggedTensor:
    """The first n items of each list."""
    return kept(lists, places(lists) < n)


def tail(lists: tf.RaggedTensor, *, n: int) -> tf.RaggedTensor:
    """The last n items of each list."""
    return kept(lists, places(lists) >= tf.gather(lists.row_lengths(), lists.value_rowids()) - n)


def count(lists: tf.RaggedTensor) -> DenseTensor:
    """The length of each list."""
    return DenseTensor(lists.row_lengths())


def sort(lists: tf.RaggedTensor, *, descending: bool) -> tf.RaggedTensor:
    """The items of each list in order."""
    values = lists.values
    keys = order_keys(tf.cast(values, tf.int64) if values.dtype == tf.bool else values, descending=descending)
    return lists.with_values(tf.gather(values, in_order(lists.value_rowids(), keys)))


def keep(lists: tf.RaggedTensor, mask: tf.RaggedTensor) -> tf.RaggedTensor:
    """The items of each list where the mask holds; lists of other lengths fail."""
    same = tf.debugging.assert_equal(lists.row_splits, mask.row_splits, "a list and its mask must have equal lengths")
    with tf.control_dependencies([] if same is None else [same]):
        return kept(lists, tf.identity(mask.values))


def pad(lists: tf.RaggedTensor, *, size: int, value: Value) -> VectorTensor:
    """The first ``size`` items of each list, filled up with ``value``."""
    return VectorTensor(lists.to_tensor(constant(value, lists.dtype), shape=[None, size]))


def constant(value: Value, dtype: tf.DType) -> tf.Tensor:
    """``value`` rounded to ``dtype``; a float beyond it is infinite.

    By way of an array: TensorFlow keeps constants that are plain numbers, and takes 0.0 and -0.0 for the same one.
    """
    if not dtype.is_floating:
        return tf.constant(value, dtype)
    with np.errstate(over="ignore"):
        return tf.constant(np.array(value).astype(dtype.as_numpy_dtype))


def item_positions(lists: tf.RaggedTensor, *, limit: int) -> tf.RaggedTensor:
    """0, 1, 2, ... for the items of each list, at most ``limit`` - 1 unless that is 0."""
    numbered = places(lists)
    return lists.with_values(tf.minimum(numbered, limit - 1) if limit else numbered)


def zip_lists(lists: tf.RaggedTensor, others: tf.RaggedTensor, *, joiner: str) -> tf.RaggedTensor:
    """The items of two lists joined one by one, as far as the shorter list goes."""
    lengths = tf.minimum(lists.row_lengths(), others.row_lengths())
    rows = tf.repeat(tf.range(lists.nrows()), lengths)
    at = tf.range(tf.size(rows, tf.int64)) - tf.gather(tf.cumsum(lengths, exclusive=True), rows)
    items = [tf.gather(each.values, tf.gather(each.row_starts(), rows) + at) for each in (lists, others)]
    texts = [item if item.dtype == tf.string else tf.strings.as_string(item) for item in items]
    return from_rows(tf.strings.join(texts, joiner), rows, lists.nrows())


def contains_item(lists: tf.RaggedTensor, *, value: Value) -> DenseTensor:
    """Whether any item of each list equals ``value``."""
    hits = tf.cast(_equal(lists.values, value), tf.int32)
    return DenseTensor(tf.math.unsorted_segment_sum(hits, lists.value_rowids(), lists.nrows()) > 0)


def _equal(values: tf.Tensor, value: Value) -> tf.Tensor:
    """By the bits of floats, since arithmetic may take numbers below the normal ones for zero."""
    if not values.dtype.is_floating:
        return tf.equal(values, tf.constant(value, values.dtype))
    with np.errstate(over="ignore"):
        held = np.array(value, values.dtype.as_numpy_dtype)
    if np.isnan(held) or float(held) != float(value):
        return tf.zeros_like(values, tf.bool)
    as_integer = tf.int32 if values.dtype == tf.float32 else tf.int64
    bits = tf.bitcast(values, as_integer)
    same = tf.equal(bits, int(held.view(as_integer.as_numpy_dtype)))
    return same if value else tf.equal(bits, 0) | tf.equal(bits, as_integer.min)
