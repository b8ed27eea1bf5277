"""Twins of the operators over lists as sets.

Every distinct item of a batch gets a number; one int64 then stands for a row and an item, and ``tf.unique`` over these
gives each row's distinct items in order of first occurrence.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from transforms.twins.order import from_rows, in_order, order_keys
from transforms.twins.tensors import DenseTensor


def intersect(*lists: tf.RaggedTensor) -> tf.RaggedTensor:
    """The values that are in every list, sorted."""
    items, sets = _sets(lists)
    return _sorted(items, _in_all(sets), lists[0].nrows())


def union(*lists: tf.RaggedTensor) -> tf.RaggedTensor:
    """The values that are in any list, sorted."""
    items, sets = _sets(lists)
    either, _ = tf.unique(tf.concat(sets, 0))
    return _sorted(items, either, lists[0].nrows())


def difference(lists: tf.RaggedTensor, others: tf.RaggedTensor) -> tf.RaggedTensor:
    """The values of the first list that are not in the second, sorted."""
    items, (ours, theirs) = _sets([lists, others])
    both, _, counts = tf.unique_with_counts(tf.concat([ours, _in_all([ours, theirs])], 0))
    return _sorted(items, tf.boolean_mask(both, counts < 2), lists.nrows())


def unique(lists: tf.RaggedTensor) -> tf.RaggedTensor:
    """Each value at its first occurrence."""
    items, (distinct,) = _sets([lists])
    rows, picks = _apart(items, distinct)
    return from_rows(tf.gather(items, picks), rows, lists.nrows())


def overlap_count(lists: tf.RaggedTensor, others: tf.RaggedTensor) -> DenseTensor:
    """The number of distinct values in both lists."""
    items, sets = _sets([lists, others])
    return DenseTensor(_sizes(items, _in_all(sets), lists.nrows()))


def jaccard(lists: tf.RaggedTensor, others: tf.RaggedTensor) -> DenseTensor:
    """Distinct values in both lists divided by those in either; 0 where both are empty."""
    items, sets = _sets([lists, others])
    either, _ = tf.unique(tf.concat(sets, 0))
    both_size, either_size = (_sizes(items, these, lists.nrows()) for these in (_in_all(sets), either))
    share = tf.cast(both_size, tf.float64) / tf.cast(tf.maximum(either_size, 1), tf.float64)
    return DenseTensor(tf.cast(share, tf.float32))


def _sets(lists: Sequence[tf.RaggedTensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """(the distinct items of all lists, and for each list its distinct pairs of row and item as one number)."""
    items, numbers = tf.unique(tf.concat([each.values for each in lists], 0), out_idx=tf.int64)
    sets, begin = [], tf.constant(0, tf.int64)
    for each in lists:
        end = begin + each.row_splits[-1]
        pairs, _ = tf.unique(each.value_rowids() * _base(items) + numbers[begin:end])
        sets.append(pairs)
        begin = end
    return items, sets


def _base(items: tf.Tensor) -> tf.Tensor:
    return tf.maximum(tf.size(items, tf.int64), 1)


def _apart(items: tf.Tensor, pairs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(rows, positions among the items) of pairs."""
    return pairs // _base(items), pairs % _base(items)


def _in_all(sets: Sequence[tf.Tensor]) -> tf.Tensor:
    pairs, _, counts = tf.unique_with_counts(tf.concat(sets, 0))
    return tf.boolean_mask(pairs, tf.equal(counts, len(sets)))


def _sorted(items: tf.Tensor, pairs: tf.Tensor, rows: tf.Tensor) -> tf.RaggedTensor:
    of, picks = _apart(items, pairs)
    order = in_order(of, tf.gather(order_keys(items), picks))
    return from_rows(tf.gather(items, tf.gather(picks, order)), tf.gather(of, order), rows)


def _sizes(items: tf.Tensor, pairs: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return tf.math.unsorted_segment_sum(tf.ones_like(pairs), _apart(items, pairs)[0], rows)
