"""Keras with ``tf.data`` as a side of ``benchmarks.dlrm_throughput``.

tf.data parses batches of examples from a TFRecord file, which is written before the measurement; tables are Keras's ``Embedding`` layers,
whose rows are averaged over an event's ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from benchmarks.support.dlrm_case import LABEL, DlrmCase, Measured, row_groups, run_side

Array = np.ndarray[Any, np.dtype[Any]]


def write_examples(case: DlrmCase, folder: Path, name: str) -> Path:
    """The events of a Parquet file as examples, one an event."""
    target = folder / f"{name}.tfrecord"
    with tf.io.TFRecordWriter(str(target)) as writer:
        for group in row_groups(folder / f"{name}.parquet", case):
            for row in range(len(group.labels)):
                example = tf.train.Example()
                features = example.features.feature
                for one, ids in group.ids.items():
                    first, stop = group.starts[one][row : row + 2]
                    features[one].int64_list.value.extend(ids[first:stop].tolist())
                features["numbers"].float_list.value.extend(group.numbers[row].tolist())
                features[LABEL].float_list.value.append(float(group.labels[row]))
                writer.write(example.SerializeToString())
    return target


def _examples(case: DlrmCase, source: Path) -> Any:
    features: dict[str, Any] = {name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64) for name in case.buckets}
    features["numbers"] = tf.io.FixedLenFeature([len(case.numbers)], tf.float32)
    features[LABEL] = tf.io.FixedLenFeature([], tf.float32)

    def parse(batch: Any) -> tuple[Any, Any]:
        parsed = tf.io.parse_example(batch, features)
        label = parsed.pop(LABEL)
        return parsed, label

    options = tf.data.Options()
    options.threading.private_threadpool_size = case.threads
    dataset = tf.data.TFRecordDataset(str(source)).batch(case.batch_rows)
    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE).with_options(options)


class Dlrm(keras.Model):  # type: ignore[misc]
    """The model of Headrace's defaults, in Keras's layers."""

    def __init__(self, case: DlrmCase) -> None:
        super().__init__()
        start = keras.initializers.TruncatedNormal(stddev=case.initial_stddev)
        self._tables = {name: keras.layers.Embedding(rows, case.dim, start) for name, rows in case.buckets.items()}
        self._bottom = [keras.layers.Dense(size, "relu") for size in (*case.bottom_mlp, case.dim)]
        self._top = [keras.layers.Dense(size, "relu") for size in case.top_mlp]
        self._last = keras.layers.Dense(1, bias_initializer=keras.initializers.Constant(case.initial_bias))
        vectors = len(case.buckets) + 1
        rows, columns = np.tril_indices(vectors, -1)
        self._pairs = (rows * vectors + columns).astype(np.int32)

    def call(self, inputs: Mapping[str, Any]) -> Any:
        """Logits, [events, 1]."""
        bottom = inputs["numbers"]
        for layer in self._bottom:
            bottom = layer(bottom)
        vectors = [bottom]
        for name, table in self._tables.items():
            bags = inputs[name]
            sums = tf.math.unsorted_segment_sum(table(bags.values), bags.value_rowids(), bags.nrows())
            vectors.append(sums / tf.cast(tf.maximum(bags.row_lengths(), 1), tf.float32)[:, None])
        stacked = tf.stack(vectors, axis=1)
        products = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), [-1, len(vectors) ** 2])
        hidden = tf.concat([bottom, tf.gather(products, self._pairs, axis=1)], axis=1)
        for layer in self._top:
            hidden = layer(hidden)
        return self._last(hidden)


class RowsAndMlps(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Adagrad for tables and Adam for the other weights."""

    def __init__(self, case: DlrmCase) -> None:
        super().__init__(learning_rate=case.dense_rate)
        self._adagrad = keras.optimizers.Adagrad(case.embedding_rate, initial_accumulator_value=case.accumulator, epsilon=1e-12)  # fmt: skip
        self._adam = keras.optimizers.Adam(case.dense_rate)

    def build(self, variables: Any) -> None:
        """Make the slots of both."""
        super().build(variables)
        self._adagrad.build([one for one in variables if "embeddings" in one.path])
        self._adam.build([one for one in variables if "embeddings" not in one.path])

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """One update."""
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        if not self.built:
            self.build(variables)
        pairs = list(zip(grads, variables, strict=True))
        for optimizer, is_table in ((self._adagrad, True), (self._adam, False)):
            own = [pair for pair in pairs if ("embeddings" in pair[1].path) == is_table]
            optimizer.apply([gradient for gradient, _ in own], [variable for _, variable in own])


class _Ticks(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, measured: Measured, case: DlrmCase, events: int) -> None:
        super().__init__()
        self._measured, self._rows, self._events = measured, case.batch_rows, events

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A step has ended."""
        self._measured.tick(min(self._rows, self._events - self._measured.events))


def build(case: DlrmCase, folder: Path) -> Callable[[Measured], Array]:
    """See :data:`~benchmarks.support.dlrm_case.Build`."""
    tf.config.threading.set_intra_op_parallelism_threads(case.threads)
    tf.config.threading.set_inter_op_parallelism_threads(case.threads)
    keras.utils.set_random_seed(case.seed)
    model = Dlrm(case)
    model.compile(RowsAndMlps(case), keras.losses.BinaryCrossentropy(from_logits=True), jit_compile=False)
    events = sum(len(group.labels) for group in row_groups(folder / "train.parquet", case))
    trained, tested = (write_examples(case, folder, name) for name in ("train", "test"))

    def run(measured: Measured) -> Array:
        measured.begin()
        model.fit(_examples(case, trained), verbose=0, callbacks=[_Ticks(measured, case, events)])
        scores: Array = model.predict(_examples(case, tested), verbose=0)[:, 0]
        return scores

    return run


if __name__ == "__main__":
    run_side(build)
