"""A trained model as TensorFlow operations over input columns, for a SavedModel: what :meth:`Trained.predict` gives.

Tables are exported whole: a row that no event has trained has the initial value that its seed gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.embedding.engine import CpuEngine, IdBatch
from trainer.errors import ConfigError
from trainer.trained import Trained
from transforms.twins.tensors import DenseTensor, TensorColumn, VectorTensor, WeightedTensor, rows_of

Array = np.ndarray[Any, np.dtype[Any]]

#: A protocol buffer ends at 2 GiB, and a server loads all of it.
_MOST_BYTES = 8 << 30
_CHUNK_ROWS = 1 << 16


class ServedModel(tf.Module):  # type: ignore[misc]
    """The weights of a trained model, and its predictions from columns by input name."""

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        self._layout = trained.weights.layout
        self._head = trained.weights.head
        self._dense = trained.weights.dense
        self._deep_tables = _tables(trained.weights.engine)
        self._linear_tables = _tables(trained.weights.linear)
        self._kept = self._dense.tensors()

    def predictions(self, columns: Mapping[str, TensorColumn]) -> dict[str, Any]:
        """``prediction``: float32 [rows] probability of 1 or number, or [rows, classes] probabilities."""
        dense = self._numbers(columns)
        activations = self._activations(columns, self._deep_tables)
        linear = self._activations(columns, self._linear_tables)
        logits = tf.cast(self._dense.logits(activations, linear, dense), tf.float64)
        if self._head.task == "binary":
            found = tf.sigmoid(logits)
        elif self._head.task == "multiclass":
            found = tf.nn.softmax(logits)
        else:
            found = logits * self._head.scale + self._head.center
        return {"prediction": tf.cast(found, tf.float32)}

    def _rows(self, columns: Mapping[str, TensorColumn]) -> Any:
        first = (*self._layout.embedded, *self._layout.dense)[0]
        return rows_of(columns[first.name])

    def _numbers(self, columns: Mapping[str, TensorColumn]) -> Any:
        parts = [_number(columns[item.name]) for item in self._layout.dense]
        return tf.concat(parts, axis=1) if parts else tf.zeros([self._rows(columns), 0])

    def _activations(self, columns: Mapping[str, TensorColumn], tables: Mapping[str, Any]) -> Any:
        if not tables:
            return tf.zeros([self._rows(columns), 0])
        parts = [
            _combined(columns[item.name], tables[feature.table.name], feature.table.combiner == "mean")
            for item, feature in zip(self._layout.embedded, self._layout.features, strict=True)
        ]
        return tf.concat(parts, axis=1)


def _tables(engine: CpuEngine | None) -> dict[str, Any]:
    if engine is None:
        return {}
    size = sum(table.vocabulary_size * table.dim * 4 for table in engine.tables)
    if size > _MOST_BYTES:
        raise ConfigError("the tables of an exported model must fit a server, got larger ones", value=f"{size:,} bytes",
                          allowed=f"at most {_MOST_BYTES:,} bytes",
                          next_step="hash the inputs into fewer buckets")  # fmt: skip
    return {table.name: tf.Variable(_rows_of_table(engine, table.name), trainable=False) for table in engine.tables}


def _rows_of_table(engine: CpuEngine, name: str) -> Array:
    """Every row of a table, read through its first feature in bags of one."""
    at = next(f for f, feature in enumerate(engine.features) if feature.table.name == name)
    table = engine.features[at].table
    columns = engine.columns[engine.features[at].name]
    parts = []
    for start in range(0, table.vocabulary_size, _CHUNK_ROWS):
        ids = np.arange(start, min(start + _CHUNK_ROWS, table.vocabulary_size))
        offsets = np.zeros((len(engine.features), len(ids) + 1), np.int64)
        offsets[at] = np.arange(len(ids) + 1)
        offsets[at + 1 :] = len(ids)
        parts.append(engine.lookup(IdBatch(ids, offsets))[:, columns])
    return np.concatenate(parts)


def _number(column: TensorColumn) -> Any:
    """float32 [rows, width]; a null is 0."""
    assert isinstance(column, (DenseTensor, VectorTensor))
    values = tf.cast(column.values, tf.float32)
    if isinstance(column, VectorTensor):
        return values
    if column.valid is not None:
        values = tf.where(column.valid, values, 0.0)
    return values[:, tf.newaxis]


def _combined(column: TensorColumn, table: Any, mean: bool) -> Any:
    """The sum or mean of the rows of each bag, float32 [rows, dim]."""
    rows = rows_of(column)
    ids, bags, weights = _bags(column, rows)
    shares = tf.ones(tf.shape(ids)) if weights is None else weights
    if mean:
        totals = tf.gather(tf.math.unsorted_segment_sum(shares, bags, rows), bags)
        shares = tf.math.divide_no_nan(shares, totals)
    values = tf.gather(tf.convert_to_tensor(table), ids) * shares[:, tf.newaxis]
    return tf.math.unsorted_segment_sum(values, bags, rows)


def _bags(column: TensorColumn, rows: Any) -> tuple[Any, Any, Any]:
    """Ids, the row of each, and its weight or None."""
    if isinstance(column, WeightedTensor):
        return column.ids.values, column.ids.value_rowids(), column.weights.values
    if isinstance(column, VectorTensor):
        width = tf.shape(column.values)[1]
        return tf.reshape(column.values, [-1]), tf.repeat(tf.range(rows), width), None
    if isinstance(column, DenseTensor):
        every = tf.range(rows)
        if column.valid is None:
            return column.values, every, None
        return tf.boolean_mask(column.values, column.valid), tf.boolean_mask(every, column.valid), None
    return column.values, column.value_rowids(), None
