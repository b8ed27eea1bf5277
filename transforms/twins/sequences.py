"""Twins of the operators over lists of timestamps."""

from __future__ import annotations

import tensorflow as tf

from transforms.operators.sequences import gap_micros
from transforms.twins import floats
from transforms.twins.order import places


def session_index(times: tf.RaggedTensor, *, gap_secs: float) -> tf.RaggedTensor:
    """The session of each item, counted from 0."""
    before, after = _neighbours(times)
    passed = after - before  # below 0 although time goes on: more than int64 holds, and than any gap
    begins = (after > before) & ((passed < 0) | (passed > gap_micros(gap_secs))) & (places(times) > 0)
    begun = tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int64))], 0)
    # The sessions that begin after the list's first item.
    return times.with_values(begun[1:] - tf.gather(begun, tf.gather(times.row_starts(), times.value_rowids())))


def gaps_secs(times: tf.RaggedTensor) -> tf.RaggedTensor:
    """Seconds from the item before to each item; 0 for the first."""
    before, after = _neighbours(times)
    micros = tf.where(after >= before, _magnitude(after - before), -_magnitude(before - after))
    micros = tf.where(places(times) > 0, micros, tf.zeros([], tf.float64))
    return times.with_values(floats.divide(micros, 1e6))


def _neighbours(times: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(the item before, of whatever list; the item) for every item."""
    values = times.values
    return tf.concat([values[:1], values], 0)[: tf.size(values)], values


def _magnitude(difference: tf.Tensor) -> tf.Tensor:
    """The difference of a greater number and a lesser, as int64 wrapped around, as float64."""
    return tf.cast(tf.bitcast(difference, tf.uint64), tf.float64)
