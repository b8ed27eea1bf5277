"""Twins of the hash family: TensorFlow's own operations, which define these operators."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from transforms.operators.hashing import CROSS_KEY
from transforms.twins.tensors import DenseTensor, TensorColumn, WeightedTensor

Tensor = Any


def hash_buckets(column: TensorColumn, *, buckets: int, salt: str) -> TensorColumn:
    """The bucket of every value."""
    if isinstance(column, tf.RaggedTensor):
        return column.with_values(_buckets_of(column.values, buckets, salt))
    if isinstance(column, WeightedTensor):
        return WeightedTensor(column.ids.with_values(_buckets_of(column.ids.values, buckets, salt)), column.weights)
    return DenseTensor(_buckets_of(column.values, buckets, salt))


def _buckets_of(values: Tensor, buckets: int, salt: str) -> Tensor:
    texts = values if values.dtype == tf.string else tf.strings.as_string(values)
    return tf.strings.to_hash_bucket_fast(tf.strings.join([salt, texts]) if salt else texts, buckets)


def cross(*columns: TensorColumn, buckets: int) -> TensorColumn:
    """Every combination of one value of each column."""
    lists = [column if isinstance(column, tf.RaggedTensor) else column.values[:, tf.newaxis] for column in columns]
    crossed = tf.ragged.cross_hashed(lists, num_buckets=buckets, hash_key=CROSS_KEY)
    crossed = tf.RaggedTensor.from_row_splits(crossed.values, tf.cast(crossed.row_splits, tf.int64), validate=False)
    if any(isinstance(column, tf.RaggedTensor) for column in columns):
        return crossed
    return DenseTensor(crossed.values)
