"""A trained model as TensorFlow operations over its inputs, for a SavedModel that predicts from raw columns.

What it gives is :meth:`~trainer.trained.Trained.predict` of the same events, but for the last digits: sums are added in
another order. A NaN or an infinity, which training refuses, gives NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.embedding.engine import CpuEngine, IdBatch
from trainer.heads import Head
from trainer.inputs import InputLayout
from trainer.trained import Trained
from transforms.twins.tensors import DenseTensor, TensorColumn, VectorTensor, WeightedTensor, rows_of

Array = np.ndarray[Any, np.dtype[Any]]

#: The output's name: probabilities of 1, [rows, classes] probabilities, or numbers, by the model's task.
PREDICTION = "prediction"
_ROWS_AT_A_TIME = 65_536


class Scorer(tf.Module):  # type: ignore[misc, unused-ignore]
    """The weights of a trained model, and its forward pass in TensorFlow."""

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        weights = trained.weights
        self._layout, self._head, self._dense = weights.layout, weights.head, weights.dense
        self.tables, self.linear = _variables(weights.engine), _variables(weights.linear)
        self.layers = weights.dense.tensorflow_variables()

    def __call__(self, inputs: Mapping[str, TensorColumn]) -> dict[str, Any]:
        """The prediction, float64, of the model's inputs as tensors."""
        rows = rows_of(next(iter(inputs.values())))
        activations, linear = (self._activations(inputs, rows, tables) for tables in (self.tables, self.linear))
        logits = self._dense.logits(activations, linear, _dense_matrix(inputs, self._layout, rows))
        return {PREDICTION: _prediction(self._head, logits)}

    def _activations(self, inputs: Mapping[str, TensorColumn], rows: Any, tables: Mapping[str, Any]) -> Any:
        vectors = []
        for feature in self._layout.features if tables else ():
            ids, of_row, weights = _bags(inputs[feature.name])
            shares = tf.ones(tf.shape(ids), tf.float32) if weights is None else weights
            found = tf.gather(tables[feature.table.name], ids) * shares[:, tf.newaxis]
            total = tf.math.unsorted_segment_sum(found, of_row, rows)
            if feature.table.combiner == "mean":
                total = tf.math.divide_no_nan(total, tf.math.unsorted_segment_sum(shares, of_row, rows)[:, tf.newaxis])
            vectors.append(total)
        return tf.concat(vectors, axis=1) if vectors else tf.zeros([rows, 0], tf.float32)


def _variables(engine: CpuEngine | None) -> dict[str, Any]:
    tables = {} if engine is None else table_rows(engine)
    return {name: tf.Variable(rows, trainable=False, name=name) for name, rows in tables.items()}


def table_rows(engine: CpuEngine) -> dict[str, Array]:
    """Every row of every embedding table, float32 [vocabulary, dim]: those never trained as their seed says."""
    tables: dict[str, Array] = {}
    for place, feature in enumerate(engine.features):
        size = feature.table.vocabulary_size
        if feature.table.name in tables:
            continue
        columns = engine.columns[feature.name]
        parts = [
            engine.lookup(_one_each(place, len(engine.features), first, min(first + _ROWS_AT_A_TIME, size)))[:, columns]
            for first in range(0, size, _ROWS_AT_A_TIME)
        ]
        tables[feature.table.name] = np.concatenate(parts)
    return tables


def _one_each(place: int, features: int, first: int, last: int) -> IdBatch:
    """Bags of one id each, ``first`` up to ``last``, of the feature at ``place``; the other features' bags are empty."""
    count = last - first
    offsets = np.zeros((features, count + 1), np.int64)
    offsets[place] = np.arange(count + 1)
    offsets[place + 1 :] = count
    return IdBatch(np.arange(first, last, dtype=np.int64), offsets)


def _bags(column: TensorColumn) -> tuple[Any, Any, Any]:
    """(ids, the row of each, weights or None)."""
    match column:
        case DenseTensor(values=values, valid=valid):
            rows = tf.range(tf.shape(values, tf.int64)[0])
            return (values, rows, None) if valid is None else (values[valid], rows[valid], None)
        case WeightedTensor():
            return column.ids.values, column.ids.value_rowids(), column.weights.values
        case VectorTensor(values=values):
            rows, size = tf.shape(values, tf.int64)[0], values.shape[1]
            return tf.reshape(values, [-1]), tf.repeat(tf.range(rows), size), None
        case _:
            return column.values, column.value_rowids(), None


def _dense_matrix(inputs: Mapping[str, TensorColumn], layout: InputLayout, rows: Any) -> Any:
    """float32 [rows, width]; null is 0, as it is beneath every null of a twin."""
    parts = []
    for item in layout.dense:
        values = tf.cast(inputs[item.name].values, tf.float32)
        parts.append(values if isinstance(inputs[item.name], VectorTensor) else values[:, tf.newaxis])
    return tf.concat(parts, axis=1) if parts else tf.zeros([rows, 0], tf.float32)


def _prediction(head: Head, logits: Any) -> Any:
    wide = tf.cast(logits, tf.float64)
    if head.task == "binary":
        return tf.sigmoid(wide)
    return tf.nn.softmax(wide) if head.task == "multiclass" else wide * head.scale + head.center
