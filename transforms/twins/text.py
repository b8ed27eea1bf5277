"""Twins of the operators over whole texts that need no tables."""

from __future__ import annotations

import tensorflow as tf

from transforms.operators.patterns import escaped
from transforms.operators.text import WHITE_SPACE
from transforms.twins.tensors import DenseTensor


def strip(text: DenseTensor, *, characters: str) -> DenseTensor:
    """Two replacements by nothing: at the beginning, and at the end."""
    removed = f"[{escaped(characters or WHITE_SPACE)}]+"
    begun = tf.strings.regex_replace(text.values, rf"\A{removed}", "", replace_global=False)
    return DenseTensor(tf.strings.regex_replace(begun, rf"{removed}\z", "", replace_global=False))


def substring(text: DenseTensor, *, start: int, length: int) -> DenseTensor:
    """TensorFlow takes no position beyond a text, so both numbers are brought within it."""
    size = _length(text.values)
    begin = tf.minimum(size, start) if start >= 0 else tf.maximum(size + start, 0)
    return DenseTensor(tf.strings.substr(text.values, begin, tf.minimum(size - begin, length), unit="UTF8_CHAR"))


def replace(text: DenseTensor, *, old: str, new: str) -> DenseTensor:
    """By a pattern of ``old`` itself."""
    return DenseTensor(tf.strings.regex_replace(text.values, escaped(old), new.replace("\\", r"\\")))


def length(text: DenseTensor) -> DenseTensor:
    """Code points of each text."""
    return DenseTensor(_length(text.values))


def starts_with(text: DenseTensor, *, prefix: str) -> DenseTensor:
    """The first bytes compared."""
    begin = tf.zeros_like(_bytes(text.values))
    return DenseTensor(tf.strings.substr(text.values, begin, begin + len(prefix.encode())) == prefix)


def ends_with(text: DenseTensor, *, suffix: str) -> DenseTensor:
    """The last bytes compared."""
    size = len(suffix.encode())
    begin = tf.maximum(_bytes(text.values) - size, 0)
    return DenseTensor(tf.strings.substr(text.values, begin, tf.fill(tf.shape(begin), size)) == suffix)


def contains(column: DenseTensor, *, text: str) -> DenseTensor:
    """Whether splitting at ``text`` leaves more than one piece; TensorFlow splits at white space if it is empty."""
    if not text:
        return DenseTensor(tf.ones_like(column.values, tf.bool))
    return DenseTensor(tf.strings.split(column.values, text).row_lengths() > 1)


def edit_distance(text: DenseTensor, other: DenseTensor) -> DenseTensor:
    """``tf.edit_distance`` over code points: it counts in float32, which is exact for texts below 2**24 code points."""
    rows = [tf.concat([column.values, [""]], 0) for column in (text, other)]  # it refuses to compare no rows
    codes = [tf.strings.unicode_decode(values, "UTF-8") for values in rows]
    width = 1 + tf.maximum(codes[0].bounding_shape(axis=1), codes[1].bounding_shape(axis=1))
    shape = tf.stack([codes[0].nrows(), width])
    a, b = (tf.SparseTensor(sparse.indices, sparse.values, shape) for sparse in (code.to_sparse() for code in codes))
    return DenseTensor(tf.cast(tf.edit_distance(a, b, normalize=False)[:-1], tf.int64))


def _length(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(values, unit="UTF8_CHAR"), tf.int64)


def _bytes(values: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(values)
