"""``tf.nn.embedding_lookup_sparse`` with a Keras optimizer as a side of ``benchmarks.embedding_kernels``."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.support.embedding_cases import RATE, START, Case, serve

Array = np.ndarray[Any, np.dtype[Any]]


class TensorflowRunner:
    """Adagrad by IndexedSlices. TensorFlow has no row-wise Adagrad, which would be less work."""

    def __init__(self, case: Case, threads: int) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        self._tables = [tf.Variable(tf.fill([rows, dim], START)) for rows, dim in case.tables]
        self._optimizer = keras.optimizers.Adagrad(RATE)
        self._optimizer.build(self._tables)
        self._inputs = [
            tf.SparseTensor(
                np.stack([np.repeat(np.arange(case.events), n), np.tile(np.arange(n), case.events)], axis=1),
                ids,
                [case.events, n],
            )
            for (_, n), ids in zip(case.inputs, case.ids(), strict=True)
        ]
        self._table_of = [table for table, _ in case.inputs]
        self._gradients = tf.constant(case.gradients())
        self._lookup = tf.function(self._activations)
        self._both = tf.function(self._train)

    def _activations(self) -> Any:
        return tf.concat(
            [
                tf.nn.embedding_lookup_sparse(self._tables[table], ids, None, combiner="sum")
                for table, ids in zip(self._table_of, self._inputs, strict=True)
            ],
            axis=1,
        )

    def _train(self) -> None:
        with tf.GradientTape() as tape:
            activations = self._activations()
        gradients = tape.gradient(activations, self._tables, output_gradients=self._gradients)
        self._optimizer.apply(gradients, self._tables)

    def lookup(self) -> Array:
        """See :class:`Runner`."""
        found: Array = self._lookup().numpy()
        return found

    def both(self) -> None:
        """See :class:`Runner`."""
        self._both()


if __name__ == "__main__":
    serve(TensorflowRunner)
