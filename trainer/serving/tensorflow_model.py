"""A trained model as TensorFlow operations over its inputs, for a SavedModel that predicts from raw columns.

Predictions equal those of :meth:`~trainer.serving.trained.Trained.predict` except for the last digits, since sums have
another order. Tables are exported whole: rows that were never trained have their initial values. A NaN or an infinity,
which training refuses, predicts NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.errors import ConfigError
from trainer.model.heads import Head
from trainer.model.inputs import InputLayout
from trainer.model.unbounded_tables import hashed_tables
from trainer.options.config import TrainConfig
from trainer.serving.deltas.calibration_arrays import calibration_arrays, calibration_name
from trainer.serving.deltas.chain import Position
from trainer.serving.deltas.model_digest import model_digest
from trainer.serving.served_model import ServedModel, ServedTable
from trainer.serving.trained import Trained
from trainer.tables.batches import IdBatch
from trainer.tables.engine import EmbeddingEngine
from trainer.tables.spec import Constant, FeatureSpec, TableSpec
from transforms.arrays import Array
from transforms.twins.tensors import DenseTensor, TensorColumn, VectorTensor, WeightedTensor, rows_of

#: The output's name: probabilities of 1, [rows, classes] probabilities, or numbers, by the model's task.
PREDICTION = "prediction"


def prediction_name(label: str) -> str:
    """The output's name of a label; "" is the only one."""
    return f"{PREDICTION}_{label}" if label else PREDICTION


#: Ids, the row of each in ascending order, and weights or None.
_Bags = tuple[Any, Any, Any]
_ROWS_AT_A_TIME = 65_536
#: The most bytes of an exported model's tables.
_MOST_BYTES = 8 << 30


class Scorer(tf.Module):  # type: ignore[misc, unused-ignore]
    """The weights of a trained model, and its forward pass in TensorFlow.

    Attributes:
        served: what the export says of its weights.

    Raises :class:`ConfigError` for tables above the limit, and for hashed ones.
    """

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        if trained.config.hashed:
            raise ConfigError("a SavedModel cannot hold hashed tables", where="hashed", value=", ".join(trained.config.hashed),
                              next_step="publish the weights with headrace export delta, or predict with headrace predict or infer")  # fmt: skip
        weights = trained.weights
        self._layout, self._head, self._dense = weights.layout, weights.head, weights.dense.host_model().in_tensorflow()
        self.deep_tables = _variables(weights.engine)
        self.linear_tables = _variables(weights.linear)
        self._deep_features, self._linear_features = _features_of(weights.engine), _features_of(weights.linear)
        dense = self._dense.tensors()
        maps = calibration_arrays(weights.head, trained.identity.config, trained.calibrations)
        self._maps = tuple(maps)
        self.layers = [*dense.values(), *(tf.Variable(table, trainable=False) for table in maps.values())]
        self.served = _served_model(trained, (*dense, *maps))

    def __call__(self, inputs: Mapping[str, TensorColumn]) -> dict[str, Any]:
        """The prediction, float64, of the model's inputs as tensors, or those of each label as ``prediction_NAME``."""
        rows = rows_of(next(iter(inputs.values())))
        newest: dict[str, _Bags] = {}
        for place in self._layout.sequences:
            for name in (self._layout.embedded[f].name for f in place.inputs):
                newest[name] = newest_bags(*_bags(inputs[name], rows), rows, place.options.length)
        ids = {
            item.name: newest.get(item.name) or _ids(inputs[item.name], rows, feature)
            for item, feature in zip(self._layout.embedded, self._layout.features, strict=True)
        }
        deep = self._activations(ids, self.deep_tables, self._deep_features, rows)
        linear = self._activations(ids, self.linear_tables, self._linear_features, rows)
        lengths = [_lengths(newest[self._layout.embedded[one.rows].name], rows) for one in self._layout.sequences]
        logits = self._dense.logits(deep, linear, tf.concat([_numbers(inputs, self._layout, rows), *lengths], axis=1))
        if isinstance(self._head, Head):
            return {PREDICTION: _prediction(self._head, self._calibrated("", logits))}
        found = {}
        for name, one in self._head.each:
            columns = self._head.columns[name]
            own = logits[:, columns] if one.width > 1 else logits[:, columns.start]
            found[prediction_name(name)] = _prediction(one, self._calibrated(name, own))
        return found

    def _calibrated(self, label: str, logits: Any) -> Any:
        """The logits of a label with its map applied, if it has one; see :meth:`~trainer.model.calibration.Calibration.apply`."""
        name = calibration_name(label)
        if name not in self._maps:
            return logits
        table = self.layers[len(self.layers) - len(self._maps) + self._maps.index(name)]
        x = tf.cast(logits, tf.float64)
        starts, images, slopes = tf.unstack(tf.convert_to_tensor(table), axis=1)
        at = tf.searchsorted(starts, x, side="right")
        base = tf.maximum(at - 1, 0)
        return tf.gather(images, base) + tf.gather(slopes, at) * (x - tf.gather(starts, base))

    def _activations(
        self,
        ids: Mapping[str, _Bags | DenseTensor],
        tables: Mapping[str, Any],
        features: Sequence[FeatureSpec],
        rows: Any,
    ) -> Any:
        if not tables:
            return tf.zeros([rows, 0])
        found = [_activation(ids[feature.name], tables[feature.table.name], rows, feature) for feature in features]
        return tf.concat(found, axis=1)


def _served_model(trained: Trained, dense: tuple[str, ...]) -> ServedModel:
    weights = trained.weights
    hashed = hashed_tables(weights.layout.features, trained.config)
    tables = [
        ServedTable(kind, _served_spec(trained.config, spec, hashed))
        for kind, engine in (("embedding", weights.engine), ("linear", weights.linear))
        for spec in (() if engine is None else engine.tables)
    ]
    position = Position(model_digest(trained.identity, weights.head), trained.epochs, trained.commit)
    return ServedModel(position, trained.config.seed, tuple(tables), dense)


def _served_spec(config: TrainConfig, spec: TableSpec, hashed: Collection[str]) -> TableSpec:
    """A table as it is served: of a pruned one, a row that is removed is read as zeros from then on; of a hashed one, with its initial values."""
    return spec if config.pruning is None or spec.name in hashed else replace(spec, initializer=Constant(0.0))


def _features_of(engine: EmbeddingEngine | None) -> tuple[FeatureSpec, ...]:
    return engine.features if engine is not None else ()


def _variables(engine: EmbeddingEngine | None) -> dict[str, Any]:
    if engine is None:
        return {}
    size_bytes = sum(table.vocabulary_size * table.dim * 4 for table in engine.tables)
    if size_bytes > _MOST_BYTES:
        raise ConfigError(f"the tables of an exported model must have at most {_MOST_BYTES:,} bytes",
                          value=f"{size_bytes:,} bytes", allowed=f"at most {_MOST_BYTES:,} bytes",
                          next_step="hash the inputs into fewer buckets")  # fmt: skip
    return {name: tf.Variable(rows, trainable=False, name=name) for name, rows in table_rows(engine).items()}


def table_rows(engine: EmbeddingEngine) -> dict[str, Array]:
    """Every row of every table of an engine, float32 [vocabulary, dim], by the table's name; zeros of a pruned row."""
    tables: dict[str, Array] = {}
    starts = np.cumsum([0, *(feature.width for feature in engine.features)]).tolist()
    for place, feature in enumerate(engine.features):
        size, start = feature.table.vocabulary_size, starts[place]
        if feature.table.name in tables:
            continue
        columns = slice(start, start + feature.table.dim)  # the first row of a sequence
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


def _ids(column: TensorColumn, rows: Any, feature: FeatureSpec) -> _Bags | DenseTensor:
    """The bags of a column; one of a single id an event as it is, unless its table gives a sequence."""
    return column if isinstance(column, DenseTensor) and not feature.max_sequence_length else _bags(column, rows)


def _row_of_one(column: DenseTensor, table: Any) -> Any:
    """The row of the one id of each event, float32 [rows, width]: every combiner's result of a bag of one; zeros for a null."""
    if column.valid is None:
        return tf.gather(table, column.values)
    found = tf.gather(table, tf.where(column.valid, column.values, 0))
    return tf.where(column.valid[:, tf.newaxis], found, 0.0)


def _activation(column: _Bags | DenseTensor, table: Any, rows: Any, feature: FeatureSpec) -> Any:
    """The combined rows of each bag, or the rows of its first ids, float32 [rows, width]."""
    if isinstance(column, DenseTensor):
        return _row_of_one(column, tf.convert_to_tensor(table))
    ids, bags, weights = column
    if feature.max_sequence_length:
        return _sequence(table, _ragged(ids, bags, rows), weights, feature)
    shares = tf.ones(tf.shape(ids)) if weights is None else weights
    if feature.table.combiner != "sum":
        is_mean = feature.table.combiner == "mean"
        totals = tf.math.unsorted_segment_sum(shares if is_mean else shares * shares, bags, rows)
        shares = tf.math.divide_no_nan(shares, tf.gather(totals if is_mean else tf.sqrt(totals), bags))
    values = tf.gather(tf.convert_to_tensor(table), ids) * shares[:, tf.newaxis]
    return tf.math.unsorted_segment_sum(values, bags, rows)


def _ragged(ids: Any, bags: Any, rows: Any) -> Any:
    return tf.RaggedTensor.from_value_rowids(ids, tf.cast(bags, tf.int64), tf.cast(rows, tf.int64))


def _sequence(table: Any, ids: Any, weights: Any, feature: FeatureSpec) -> Any:
    shares = ids.with_values(tf.ones(tf.shape(ids.values)) if weights is None else weights)
    length = feature.max_sequence_length
    values = tf.gather(tf.convert_to_tensor(table), ids.to_tensor(shape=[None, length]))
    return tf.reshape(values * shares.to_tensor(shape=[None, length])[:, :, tf.newaxis], [-1, feature.width])


def newest_bags(ids: Any, bags: Any, weights: Any, rows: Any, length: int) -> _Bags:
    """The last ``length`` ids of each row, the last one first: the ids of a sequence, as batches of training have them."""
    ends = _ragged(ids, bags, rows).row_splits[1:]
    lengths = tf.minimum(ends - tf.concat([[0], ends[:-1]], axis=0), length)
    taken = tf.repeat(tf.range(tf.cast(rows, tf.int64)), lengths)
    back = tf.range(tf.reduce_sum(lengths)) - tf.gather(tf.cumsum(lengths, exclusive=True), taken)
    at = tf.gather(ends, taken) - 1 - back
    return tf.gather(ids, at), taken, None if weights is None else tf.gather(weights, at)


def _lengths(column: _Bags, rows: Any) -> Any:
    """The ids of each row, float32 [rows, 1]."""
    ids, bags, _ = column
    return tf.math.unsorted_segment_sum(tf.ones(tf.shape(ids)), bags, rows)[:, tf.newaxis]


def _bags(column: TensorColumn, rows: Any) -> _Bags:
    """The bags of a column."""
    match column:
        case WeightedTensor():
            return column.ids.values, column.ids.value_rowids(), column.weights.values
        case VectorTensor(values=values):
            return tf.reshape(values, [-1]), tf.repeat(tf.range(rows), tf.shape(values)[1]), None
        case DenseTensor(values=values, valid=valid):
            every = tf.range(rows)
            if valid is None:
                return values, every, None
            return tf.boolean_mask(values, valid), tf.boolean_mask(every, valid), None
        case _:
            return column.values, column.value_rowids(), None


def _numbers(inputs: Mapping[str, TensorColumn], layout: InputLayout, rows: Any) -> Any:
    """float32 [rows, width]; a null is 0."""
    parts = [_number(inputs[item.name]) for item in layout.dense]
    return tf.concat(parts, axis=1) if parts else tf.zeros([rows, 0])


def _number(column: TensorColumn) -> Any:
    assert isinstance(column, (DenseTensor, VectorTensor))  # no other type passes lay_out
    values = tf.cast(column.values, tf.float32)
    if isinstance(column, VectorTensor):
        return values
    return (values if column.valid is None else tf.where(column.valid, values, 0.0))[:, tf.newaxis]


def _prediction(head: Head, logits: Any) -> Any:
    wide = tf.cast(logits, tf.float64)
    if head.task == "binary":
        return tf.sigmoid(wide)
    return tf.nn.softmax(wide) if head.task == "multiclass" else wide * head.scale + head.center
