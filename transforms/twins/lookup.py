"""Twins of the look-ups: a search among sorted fingerprints, which are constants of the graph.

The twins use no TensorFlow hash table, which an exported model would have to keep and initialise. The fingerprints of the
terms are sorted when the graph is traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from transforms.operators.lookup import held
from transforms.twins.tensors import ELEMENT, ConstantsTensor, DenseTensor, WeightedTensor
from transforms.types import DType

_BUCKETS = 2**63 - 1


def lookup(
    column: DenseTensor,
    *,
    keys: Sequence[str],
    values: Sequence[float | str],
    dtype: str,
    default: Sequence[float | str],
) -> DenseTensor:
    """The value of each key, or the default, or null."""
    positions, known = _positions(_text(column.values), np.array([key.encode() for key in keys], object))
    table = _constant([held(value, dtype) for value in values], dtype)
    taken = tf.gather(table, positions)
    if not default:
        return DenseTensor(taken, known)
    return DenseTensor(tf.where(known, taken, _constant([held(default[0], dtype)], dtype)))


def _constant(values: Sequence[Any], dtype: str) -> tf.Tensor:
    """A constant from numpy: TensorFlow's cache of plain numbers takes -0.0 for 0.0."""
    element = ELEMENT[DType(dtype)]
    return tf.constant(np.array(values, element.as_numpy_dtype), element)


def vocabulary_lookup(
    column: DenseTensor | WeightedTensor, terms: ConstantsTensor, *, oov_buckets: int
) -> DenseTensor | WeightedTensor:
    """The position of each value among the terms, or an id after them."""
    constant = tf.get_static_value(terms.values)
    if isinstance(column, WeightedTensor):
        ids = column.ids.with_values(_ids(column.ids.values, constant, oov_buckets))
        return WeightedTensor(ids, column.weights)
    return DenseTensor(_ids(column.values, constant, oov_buckets))


def _ids(values: tf.Tensor, terms: np.ndarray[Any, Any], oov_buckets: int) -> tf.Tensor:
    text = _text(values)
    positions, known = _positions(text, terms)
    return tf.where(known, positions, len(terms) + tf.strings.to_hash_bucket_fast(text, oov_buckets))


def _text(values: tf.Tensor) -> tf.Tensor:
    return values if values.dtype == tf.string else tf.strings.as_string(values)


def _positions(text: tf.Tensor, terms: np.ndarray[Any, Any]) -> tuple[tf.Tensor, tf.Tensor]:
    """The position of each text among the terms, and where it is one of them."""
    salt, hashes = _distinct_hashes(terms)
    order = np.argsort(hashes)
    place = tf.searchsorted(tf.constant(hashes[order]), _hashed(text, salt), out_type=tf.int64)
    candidates = tf.gather(tf.constant(order, tf.int64), tf.minimum(place, len(terms) - 1))
    return candidates, tf.equal(tf.gather(tf.constant(terms), candidates), text)


def _distinct_hashes(terms: np.ndarray[Any, Any]) -> tuple[str, np.ndarray[Any, Any]]:
    """A salt under which all terms have different hashes, and these hashes. Computed when the graph is traced."""
    salt = ""
    while True:
        with tf.init_scope():
            hashes: np.ndarray[Any, Any] = _hashed(tf.constant(terms), salt).numpy()
        if len(np.unique(hashes)) == len(terms):
            return salt, hashes
        salt += "-"


def _hashed(text: tf.Tensor, salt: str) -> tf.Tensor:
    salted = tf.strings.join([salt, text]) if salt else text
    return tf.strings.to_hash_bucket_fast(salted, _BUCKETS)
