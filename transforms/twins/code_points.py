"""Texts as code points in TensorFlow, and tables applied to them."""

from __future__ import annotations

import tensorflow as tf

from transforms.twins.unicode_tables import Expansions, Ranges


def decoded(text: tf.Tensor) -> tf.RaggedTensor:
    """The code points of each text, int32."""
    return tf.strings.unicode_decode(text, "UTF-8")


def encoded(codes: tf.RaggedTensor) -> tf.Tensor:
    """Texts of code points."""
    return tf.strings.unicode_encode(codes, "UTF-8")


def expanded(codes: tf.RaggedTensor, table: Expansions) -> tf.RaggedTensor:
    """Every code point replaced by its entry in the table."""
    found, at = positions_in(table.of, codes.values)
    sizes = tf.where(found, tf.gather(table.sizes, at), 1)
    ends = tf.cumsum(sizes)
    source = tf.repeat(tf.range(tf.size(sizes)), sizes)
    within = tf.range(tf.size(source)) - tf.gather(ends - sizes, source)
    picks = tf.where(tf.gather(found, source), tf.gather(table.begins, tf.gather(at, source)) + within, 0)
    values = tf.where(tf.gather(found, source), tf.gather(table.into, picks), tf.gather(codes.values, source))
    splits = tf.gather(tf.concat([[0], ends], 0), codes.row_splits)
    return tf.RaggedTensor.from_row_splits(values, tf.cast(splits, tf.int64), validate=False)


def positions_in(ascending: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Whether each value is in a list that is not empty, and where (anywhere, if it is not)."""
    at = tf.minimum(tf.searchsorted(ascending, values), len(ascending) - 1)
    return tf.gather(ascending, at) == values, at


def looked_up(table: Ranges, codes: tf.Tensor) -> tf.Tensor:
    """The value of the range that each code point is in."""
    return tf.gather(table.values, tf.searchsorted(table.begins, codes, side="right") - 1)
