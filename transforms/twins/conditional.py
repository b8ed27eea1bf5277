"""Twins that choose between columns. They handle nulls themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from transforms.twins import floats
from transforms.twins.numbers import common_type
from transforms.twins.tensors import DenseTensor, TensorColumn

Tensor = Any


def if_else(cond: TensorColumn, a: TensorColumn, b: TensorColumn) -> TensorColumn:
    """The value of ``a`` where cond is true, ``b`` where false; null where cond is null; of lists item by item."""
    lists = [column for column in (cond, a, b) if isinstance(column, tf.RaggedTensor)]
    if isinstance(cond, DenseTensor) and len(lists) == 2:
        return _whole_lists(cond, a, b)
    return _over_items(lists, (cond, a, b)) if lists else _dense_choice(cond, a, b)


def _dense_choice(cond: DenseTensor, a: DenseTensor, b: DenseTensor) -> DenseTensor:
    chosen = _choose(cond.values, a, b)
    return DenseTensor(chosen.values, _valid(cond) & _valid(chosen))


def _over_items(lists: Sequence[tf.RaggedTensor], columns: Sequence[TensorColumn]) -> tf.RaggedTensor:
    """The choice for each item of lists of equal lengths; dense arguments are repeated, null items dropped."""
    same = [
        tf.debugging.assert_equal(lists[0].row_splits, other.row_splits, "the lists of if_else must have equal lengths")
        for other in lists[1:]
    ]
    with tf.control_dependencies([check for check in same if check is not None]):
        rows = tf.identity(lists[0].value_rowids())
    parts = [
        DenseTensor(column.values) if isinstance(column, tf.RaggedTensor) else _spread(column, rows)
        for column in columns
    ]
    chosen = _dense_choice(*parts)
    return tf.ragged.boolean_mask(lists[0].with_values(chosen.values), lists[0].with_values(chosen.valid))


def _spread(column: DenseTensor, rows: Tensor) -> DenseTensor:
    return DenseTensor(tf.gather(column.values, rows), tf.gather(_valid(column), rows))


def _whole_lists(cond: DenseTensor, a: tf.RaggedTensor, b: tf.RaggedTensor) -> tf.RaggedTensor:
    """The whole list of one or the other; the empty list where cond is null."""
    left, right = _alike(DenseTensor(a.values), DenseTensor(b.values))
    both = tf.concat([a.with_values(left), b.with_values(right)], axis=0)
    rows = tf.range(a.nrows())
    chosen = tf.gather(both, tf.where(cond.values, rows, rows + a.nrows()))
    return tf.ragged.boolean_mask(chosen, chosen.with_values(tf.gather(_valid(cond), chosen.value_rowids())))


def coalesce(*columns: DenseTensor) -> DenseTensor:
    """The first valid value of each row."""
    result = columns[-1]
    for column in reversed(columns[:-1]):
        result = _choose(_valid(column), column, result)
    return result


def _choose(taken: Tensor, a: DenseTensor, b: DenseTensor) -> DenseTensor:
    left, right = _alike(a, b)
    return DenseTensor(tf.where(taken, left, right), tf.where(taken, _valid(a), _valid(b)))


def _alike(a: DenseTensor, b: DenseTensor) -> tuple[Tensor, Tensor]:
    """The values of both in their common type."""
    left, right = a.values, b.values
    if left.dtype != common_type(a, b) or right.dtype != common_type(a, b):
        left, right = floats.wide(left), floats.wide(right)
    return left, right


def _valid(column: DenseTensor) -> Tensor:
    return tf.ones(tf.shape(column.values), tf.bool) if column.valid is None else column.valid
