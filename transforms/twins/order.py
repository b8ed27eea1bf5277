"""Shared parts of the twins over lists: selection by a mask, positions in a row, sort keys as int64."""

from __future__ import annotations

import tensorflow as tf

_LAST = tf.int64.max
_CHUNK_BYTES = 7


def kept(lists: tf.RaggedTensor, mask: tf.Tensor) -> tf.RaggedTensor:
    """The items where ``mask``, of the shape of ``lists.values``, holds."""
    return from_rows(tf.boolean_mask(lists.values, mask), tf.boolean_mask(lists.value_rowids(), mask), lists.nrows())


def from_rows(values: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.RaggedTensor:
    """Lists of items whose ``rows`` ascend."""
    return tf.RaggedTensor.from_value_rowids(values, rows, count, validate=False)


def places(lists: tf.RaggedTensor) -> tf.Tensor:
    """The position of each item in its list, from 0."""
    return tf.range(lists.row_splits[-1]) - tf.gather(lists.row_starts(), lists.value_rowids())


def order_keys(values: tf.Tensor, *, descending: bool = False) -> tf.Tensor:
    """int64 numbers that order as the items do: -0.0 before 0.0, NaN last in either direction, text by its bytes.

    Works on bits, since arithmetic may take numbers below the normal ones for zero.
    """
    if values.dtype.is_floating:
        keys = _float_keys(values)
        keys = tf.bitwise.invert(keys) if descending else keys
        return tf.where(tf.math.is_nan(values), _LAST, keys)
    keys = _text_ranks(values) if values.dtype == tf.string else tf.cast(values, tf.int64)
    return tf.bitwise.invert(keys) if descending else keys


def _float_keys(values: tf.Tensor) -> tf.Tensor:
    if values.dtype == tf.float32:
        bits, magnitude = tf.cast(tf.bitcast(values, tf.int32), tf.int64), tf.constant(2**31 - 1, tf.int64)
    else:
        bits, magnitude = tf.bitcast(values, tf.int64), tf.constant(2**63 - 1, tf.int64)
    return tf.where(bits < 0, -1 - tf.bitwise.bitwise_and(bits, magnitude), bits)


def in_order(rows: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """The permutation that sorts items by row, then by key, stably."""
    by_key = tf.argsort(keys, stable=True)
    return tf.gather(by_key, tf.argsort(tf.gather(rows, by_key), stable=True))


def _text_ranks(texts: tf.Tensor) -> tf.Tensor:
    """The rank of each text among the distinct ones, in the order of their bytes.

    Texts with equal prefixes are compared by the next seven bytes until all differ. A chunk's length is its key's eighth byte, so
    that a text sorts before a longer text that continues with zeros.
    """
    distinct, places_of = tf.unique(texts)
    count = tf.size(distinct)
    lengths = tf.strings.length(distinct)

    def unfinished(groups: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
        return tf.reduce_max(tf.concat([groups, [-1]], 0)) < tf.cast(count, tf.int64) - 1

    def refine(groups: tf.Tensor, start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        keys = _chunk_keys(distinct, lengths, start)
        order = in_order(groups, keys)
        ordered_groups, ordered_keys = tf.gather(groups, order), tf.gather(keys, order)
        changes = (ordered_groups[1:] != ordered_groups[:-1]) | (ordered_keys[1:] != ordered_keys[:-1])
        ranks = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(tf.cast(changes, tf.int64))], 0)
        return tf.scatter_nd(order[:, tf.newaxis], ranks, tf.shape(groups, order.dtype)), start + _CHUNK_BYTES

    groups, _ = tf.while_loop(
        unfinished,
        refine,
        (tf.zeros([count], tf.int64), tf.constant(0)),
        shape_invariants=(tf.TensorShape([None]), tf.TensorShape([])),
    )
    return tf.gather(groups, places_of)


def _chunk_keys(texts: tf.Tensor, lengths: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """The bytes of each text from ``start`` on as a number that orders as they do."""
    begins = tf.minimum(lengths, start)
    chunks = tf.strings.substr(texts, begins, tf.fill(tf.shape(texts), _CHUNK_BYTES))
    words = tf.io.decode_raw(chunks, tf.int64, little_endian=False, fixed_length=8)[:, 0]
    sizes = tf.cast(tf.minimum(lengths - begins, _CHUNK_BYTES), tf.int64)
    return tf.bitwise.bitwise_xor(tf.bitwise.bitwise_or(words, sizes), tf.int64.min)
