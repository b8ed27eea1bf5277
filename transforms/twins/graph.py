"""Components in TensorFlow: the twin of each operator, with nulls and lists handled as in a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from transforms.errors import InputError
from transforms.graphs.artifacts import Artifacts, no_artifacts
from transforms.graphs.graph import Artifact, Literal, Node, Operation, RawColumn, topological
from transforms.operators import REGISTRY, Operator
from transforms.operators.declaration import Scalar
from transforms.render import expression_text
from transforms.twins import floats
from transforms.twins.tensors import (
    ELEMENT,
    ConstantsTensor,
    DenseTensor,
    TensorColumn,
    VectorTensor,
    WeightedTensor,
    both,
    emptied,
    from_arrow,
    rows_of,
    zeroed,
)
from transforms.types import ColumnType, Dense, Ragged


class NoTwin(InputError):
    """An operator has no TensorFlow twin, so a component that uses it cannot be served by TensorFlow."""


def compute(
    components: Mapping[str, Node], columns: Mapping[str, TensorColumn], artifacts: Artifacts = no_artifacts
) -> dict[str, TensorColumn]:
    """Compute components over raw columns, eagerly or into the graph being traced. Shared nodes are computed once.

    ``columns`` holds one value for each raw column, all of equally many rows; every NaN in them is read as the quiet one.
    Raises :class:`NoTwin`.
    """
    rows = rows_of(next(iter(columns.values())))
    values: dict[str, TensorColumn] = {}
    for node in topological(components.values()):
        values[node.identity] = _value(node, [values[arg.identity] for arg in node.args], columns, rows, artifacts)
    return {key: values[root.identity] for key, root in components.items()}


def _value(
    node: Node, args: Sequence[TensorColumn], columns: Mapping[str, TensorColumn], rows: tf.Tensor, artifacts: Artifacts
) -> TensorColumn:
    match node:
        case RawColumn():
            return _with_one_nan(columns[node.name])
        case Literal():
            # From numpy: TensorFlow's cache of plain numbers takes -0.0 for 0.0.
            value = np.array(node.value, ELEMENT[node.type.dtype].as_numpy_dtype)
            return DenseTensor(tf.fill([rows], tf.constant(value)))
        case Artifact():
            return ConstantsTensor(_constants(artifacts(node.digest), node.type))
        case Operation():
            operator = REGISTRY[node.op]
            if operator.twin is None:
                raise NoTwin("an operator has no TensorFlow twin", where=expression_text(node), value=node.op,
                             next_step="compute this input before serving, or express it by other operators")  # fmt: skip
            return apply_twin(operator, args, dict(node.params), node.type)
        case _:
            raise InputError(
                "a node of a component must be a column, literal, artifact or operation", value=type(node).__name__
            )


def _with_one_nan(column: TensorColumn) -> TensorColumn:
    """A raw column as :mod:`transforms.columns.nans` reads it."""
    match column:
        case DenseTensor() | VectorTensor():
            return replace(column, values=floats.with_one_nan(column.values))
        case tf.RaggedTensor():
            return column.with_values(floats.with_one_nan(column.values))
        case WeightedTensor():
            weights = column.weights.with_values(floats.with_one_nan(column.weights.values))
            return WeightedTensor(column.ids, weights)
        case _:
            return column


def _constants(array: Any, column_type: ColumnType) -> tf.Tensor:
    tensor: DenseTensor = from_arrow(array, Dense(column_type.dtype))
    return tensor.values


def apply_twin(
    operator: Operator, args: Sequence[TensorColumn], params: Mapping[str, Scalar], result: ColumnType
) -> TensorColumn:
    """An operator's twin over tensors. ``params`` are bound and ``result`` is what the operator infers."""
    assert operator.twin is not None, "the caller checks that there is a twin"
    lists = [i for i, arg in enumerate(args) if isinstance(arg, tf.RaggedTensor)]
    if operator.lifts and isinstance(result, Ragged) and len(lists) == 1:
        return _apply_to_items(operator, args, lists[0], params, result)
    column: TensorColumn = operator.twin(*args, **params)
    valid = None
    if operator.nulls == "propagate":
        for arg in args:
            valid = both(valid, arg.valid if isinstance(arg, DenseTensor) else None)
    return _with_nulls(column, valid)


def _apply_to_items(
    operator: Operator, args: Sequence[TensorColumn], lifted: int, params: Mapping[str, Scalar], result: Ragged
) -> TensorColumn:
    lists = args[lifted]
    of_item = lists.value_rowids()
    inner = [DenseTensor(arg.values) if i == lifted else _spread(arg, of_item) for i, arg in enumerate(args)]
    items = apply_twin(operator, inner, params, Dense(result.dtype, result.buckets))
    whole = lists.with_values(items.values)
    return whole if items.valid is None else tf.ragged.boolean_mask(whole, lists.with_values(items.valid))


def _spread(column: TensorColumn, rows: tf.Tensor) -> TensorColumn:
    if not isinstance(column, DenseTensor):
        return column
    valid = None if column.valid is None else tf.gather(column.valid, rows)
    return DenseTensor(tf.gather(column.values, rows), valid)


def _with_nulls(column: TensorColumn, valid: tf.Tensor | None) -> TensorColumn:
    match column:
        case DenseTensor():
            valid = both(valid, column.valid)
            return column if valid is None else DenseTensor(zeroed(column.values, valid), valid)
        case _ if valid is None:
            return column
        case tf.RaggedTensor():
            return emptied(column, valid)
        case WeightedTensor():
            return WeightedTensor(emptied(column.ids, valid), emptied(column.weights, valid))
        case VectorTensor():
            return replace(column, values=zeroed(column.values, valid[:, tf.newaxis]))
        case _:
            return column
