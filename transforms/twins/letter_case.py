"""Twins of lower and upper."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from transforms.twins.code_points import decoded, encoded, expanded, looked_up
from transforms.twins.tensors import DenseTensor, TensorColumn
from transforms.twins.unicode_tables import CASED, IGNORABLE, case_kinds, lower_table, upper_table

_SIGMA, _FINAL_SIGMA = 0x3A3, 0x3C2


def lower(text: TensorColumn) -> TensorColumn:
    """Lower case, of texts or of lists of texts."""
    if isinstance(text, tf.RaggedTensor):
        return text.with_values(_lower(text.values))
    return DenseTensor(_lower(text.values))


def upper(text: DenseTensor) -> DenseTensor:
    """Upper case."""
    return DenseTensor(
        _changed(text.values, tf.strings.upper, lambda values: encoded(expanded(decoded(values), upper_table())))
    )


def _lower(values: tf.Tensor) -> tf.Tensor:
    return _changed(
        values,
        tf.strings.lower,
        lambda texts: encoded(expanded(_with_final_sigmas(decoded(texts)), lower_table())),
    )


def _changed(
    values: tf.Tensor, of_ascii: Callable[[tf.Tensor], tf.Tensor], of_all: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """The texts in the other case: where all of them are ASCII by TensorFlow's own operation, which changes no other byte."""
    are_ascii = tf.reduce_all(tf.strings.regex_full_match(values, r"[\x00-\x7F]*"))
    return tf.cond(are_ascii, lambda: of_ascii(values), lambda: of_all(values))


def _with_final_sigmas(codes: tf.RaggedTensor) -> tf.RaggedTensor:
    """Each capital sigma that ends a word made a small final one.

    It ends a word if the nearest character before it that is not ignorable is cased, and the nearest one behind is not.
    Those that are not ignorable are numbered, so that the nearest ones are neighbours by number.
    """
    flat, rows = codes.values, codes.value_rowids()
    kinds = looked_up(case_kinds(), flat)
    counts = tf.cast(kinds != IGNORABLE, tf.int64)
    size = tf.size(flat, tf.int64)
    stops = tf.concat([[-1], tf.where(kinds != IGNORABLE)[:, 0], [size]], 0)
    sigmas = tf.where(flat == _SIGMA)[:, 0]
    number = tf.gather(tf.cumsum(counts), sigmas)  # a sigma is itself stops[number]
    row = tf.gather(rows, sigmas)
    before, behind = tf.gather(stops, number - 1), tf.gather(stops, number + 1)
    joined = (before >= tf.gather(codes.row_starts(), row)) & _cased(kinds, before)
    continued = (behind < tf.gather(codes.row_limits(), row)) & _cased(kinds, behind)
    final = tf.boolean_mask(sigmas, joined & ~continued)
    changed = tf.tensor_scatter_nd_update(flat, final[:, tf.newaxis], tf.fill(tf.shape(final), _FINAL_SIGMA))
    return codes.with_values(changed)


def _cased(kinds: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
    inside = tf.clip_by_value(at, 0, tf.maximum(tf.size(kinds, tf.int64) - 1, 0))
    return tf.gather(kinds, inside) == CASED
