"""Expressions over lists and weighted lists, run by kernels and as traced TensorFlow graphs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tests.transforms.adversarial import FLOATS, INT64S, NASTY_TEXT, arrow_column, bits, python_values
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import Expr
from transforms.graphs.graph import raw_columns
from transforms.types import ColumnType, DType, Weighted

_SMALL = [3.0, 1e-40, -1e-45, 2.0**-126, -(2.0**-127), 0.25, 7.0, 7.0, -7.0]


def items(dtype: DType, source: np.random.Generator, count: int) -> list[Any]:
    """Items that are hard on an order: repeated, equal up to their sign or their last byte, below the normal numbers."""
    pools: dict[DType, Sequence[Any]] = {
        DType.BOOL: [True, False],
        DType.STRING: [*NASTY_TEXT, "a" * 13, "a" * 14, "a" * 14 + "\x00", "a" * 15, "aaaaaaa\x00b", "aaaaaaab"],
        DType.FLOAT32: [float(np.float32(x)) for x in [*FLOATS, *_SMALL] if not np.isfinite(x) or abs(x) < 3e38],
        DType.FLOAT64: [*FLOATS, *_SMALL],
    }
    pool = pools.get(dtype, [*INT64S, *range(9)])
    return [pool[i] for i in source.integers(0, len(pool), count)]


def lists(column_type: ColumnType, source: np.random.Generator, rows: int, lengths: Sequence[int]) -> list[Any]:
    """``rows`` lists of these lengths, over and over."""
    sizes = [lengths[i % len(lengths)] for i in range(rows)]
    if not isinstance(column_type, Weighted):
        return [items(column_type.dtype, source, size) for size in sizes]
    return [
        list(zip(items(column_type.dtype, source, size), items(DType.FLOAT32, source, size), strict=True))
        for size in sizes
    ]


def by_kernels(expression: Expr, columns: Mapping[str, Sequence[Any]]) -> Any:
    """What the kernels give, as bits."""
    result = compile_plan({"it": expression.node}).run(pa.table(_arrays(expression, columns)))
    assert not result.failures, result.failures
    return bits(python_values(result.columns["it"], expression.type), expression.type)


def _arrays(expression: Expr, columns: Mapping[str, Sequence[Any]]) -> dict[str, pa.Array]:
    return {column.name: arrow_column(columns[column.name], column.type) for column in raw_columns(expression.node)}


def by_graph(expression: Expr, columns: Mapping[str, Sequence[Any]]) -> Any:
    """What a traced graph gives, as bits; it knows no sizes."""
    from transforms.twins.tensors import from_arrow, to_arrow

    types = {column.name: column.type for column in raw_columns(expression.node)}
    parts = {name: _parts(from_arrow(at, types[name])) for name, at in _arrays(expression, columns).items()}
    served = _traced(expression, parts)(parts)
    return bits(python_values(to_arrow(_whole(served), expression.type), expression.type), expression.type)


_TRACED: dict[tuple[str, str], Any] = {}


def _traced(expression: Expr, parts: Any) -> Any:
    """A TensorFlow function traced once for an expression and the structure of what it reads."""
    import tensorflow as tf

    from transforms.twins.graph import compute

    def serve(parts: Any) -> Any:
        whole = {name: _whole(part) for name, part in parts.items()}
        return _parts(compute({"it": expression.node}, whole)["it"])

    signature = tf.nest.map_structure(_of_any_size, parts, expand_composites=False)
    key = (expression.node.identity, str(signature))
    if key not in _TRACED:
        _TRACED[key] = tf.function(serve, input_signature=[signature], autograph=False)
    return _TRACED[key]


def _parts(column: Any) -> Any:
    """A column as what a TensorFlow function takes and gives."""
    import tensorflow as tf

    from transforms.twins.tensors import DenseTensor, WeightedTensor

    match column:
        case tf.RaggedTensor():
            return column
        case DenseTensor():
            return {"values": column.values} | ({} if column.valid is None else {"valid": column.valid})
        case WeightedTensor():
            return {"ids": column.ids, "weights": column.weights}
        case _:
            return {"vectors": column.values}


def _whole(parts: Any) -> Any:
    from transforms.twins.tensors import DenseTensor, VectorTensor, WeightedTensor

    if not isinstance(parts, dict):
        return parts
    if "ids" in parts:
        return WeightedTensor(**parts)
    return VectorTensor(parts["vectors"]) if "vectors" in parts else DenseTensor(**parts)


def _of_any_size(tensor: Any) -> Any:
    import tensorflow as tf

    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None, None], tensor.dtype, ragged_rank=1, row_splits_dtype=tf.int64)
    return tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype)
