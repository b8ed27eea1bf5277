"""TensorFlow's features as columns: their expressions, and how they enter a preprocessing_fn."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from transforms.errors import InputError
from transforms.expressions.expression import Expr, column, ragged, vector
from transforms.types import DType

_ELEMENT = {tf.string: DType.STRING, tf.int64: DType.INT64, tf.float32: DType.FLOAT32}
_ALLOWED = (
    "FixedLenFeature of shape [], [1] or [n], VarLenFeature, or RaggedFeature, of tf.string, tf.int64 or tf.float32"
)


def features_of_schema(schema: Any) -> Mapping[str, Any]:
    """The feature spec of a TensorFlow Metadata schema. Raises :class:`InputError` for anything else."""
    if type(schema).__name__ != "Schema" or not hasattr(schema, "feature"):
        raise InputError("the columns of a preprocessing_fn must be a mapping by key, or a schema", where="columns",
                         value=type(schema).__name__, allowed="expressions or features by key, a feature spec, a Schema "
                         "of TensorFlow Metadata",
                         next_step='such as {"query": hr.text("query")}')  # fmt: skip
    try:
        utilities = importlib.import_module("tensorflow_transform.tf_metadata.schema_utils")
        return dict(utilities.schema_as_feature_spec(schema).feature_spec)
    except (ImportError, ValueError, TypeError) as error:
        raise InputError("a schema must have a feature spec", where="columns", value=str(error)[:300],
                         next_step="give columns by key") from error  # fmt: skip


def column_of_feature(name: str, feature: Any) -> tuple[Expr, str]:
    """The column of a feature, and its way of entering: ``sparse``, ``ragged``, ``shape1``, or the default.

    A VarLenFeature is a column of at most one value per event; a column of lists needs an expression. Raises
    :class:`InputError` for a feature without a column.
    """
    dtype = _ELEMENT.get(getattr(feature, "dtype", None))
    match feature:
        case _ if dtype is None:
            pass
        case tf.io.VarLenFeature():
            return column(name, dtype), "sparse"
        case tf.io.FixedLenFeature():
            shape = list(tf.TensorShape(feature.shape).as_list() or [])
            if not shape:
                return _filled(name, column(name, dtype), feature.default_value), ""
            if shape == [1]:
                return _filled(name, column(name, dtype), feature.default_value), "shape1"
            if len(shape) == 1 and shape[0] and feature.default_value is None and dtype is not DType.STRING:
                return vector(name, dtype, shape[0]), ""
        case tf.io.RaggedFeature() if not feature.partitions and feature.value_key in (None, name):
            return ragged(name, dtype), "ragged"
    raise InputError("a feature must be one that a column of the table can stand for", where=f"column {name}",
                     value=str(feature)[:300], allowed=_ALLOWED,
                     next_step=f'give an expression in its place, as in {{"{name}": hr.text("{name}")}}')  # fmt: skip


def _filled(name: str, expression: Expr, default: Any) -> Expr:
    """The column with the feature's default value in the place of nulls."""
    if default is None:
        return expression
    values = tf.nest.flatten(default)
    if len(values) != 1:
        raise InputError("the default value of a feature must be one value", where=f"column {name}", value=default)
    (value,) = values
    return expression.fill_null(value.decode() if isinstance(value, bytes) else getattr(value, "item", lambda: value)())
