"""``tf.distribute.ParameterServerStrategy`` as a side of ``benchmarks.ps_strategy``: servers, one worker and a coordinator, each a process.

The tables are sharded variables, as TensorFlow's guide makes them. Rows are looked up and updated where their shards are, by the operations that
Keras's Adagrad runs for them; a step is a ``tf.function`` that the coordinator schedules on the worker.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks.support.strategy_case import StrategyCase, TrainedSteps, TrainSteps

_SHARD_BYTES = 256 << 10
_EPSILON = 1e-7
_THREADS = 2


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def start_cluster(ports: Sequence[int]) -> list[subprocess.Popen[bytes]]:
    """Start the processes of the cluster: parameter servers at all ports but the last, at which the worker is."""
    names = [*(("ps", index) for index in range(len(ports) - 1)), ("worker", 0)]
    command = [sys.executable, "-m", "benchmarks.support.side_of_strategy", *map(str, ports)]
    return [subprocess.Popen([*command, kind, str(index)]) for kind, index in names]


def _cluster(ports: Sequence[int]) -> Any:
    at = [f"127.0.0.1:{port}" for port in ports]
    return tf.train.ClusterSpec({"ps": at[:-1], "worker": at[-1:]})


def _serve(ports: Sequence[int], kind: str, index: int) -> None:
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=_THREADS, inter_op_parallelism_threads=_THREADS)
    tf.distribute.Server(_cluster(ports), job_name=kind, task_index=index, config=config, protocol="grpc").join()


class _Model:
    """The tables, the MLP and Adagrad's accumulators, on the servers."""

    def __init__(self, case: StrategyCase) -> None:
        self._case = case
        tf.random.set_seed(0)
        start = tf.random_normal_initializer(stddev=case.stddev)
        shape = (case.rows, case.dim)
        self.tables = [tf.Variable(lambda: start(shape), shape=shape, dtype=tf.float32) for _ in range(case.tables)]
        self._slots = [
            tf.Variable(lambda: tf.fill(shape, case.accumulator), shape=shape, dtype=tf.float32)
            for _ in range(case.tables)
        ]
        sizes = [case.tables * (case.tables - 1) // 2, *case.top_mlp, 1]
        glorot = tf.keras.initializers.GlorotUniform(1)
        kernels = [tf.Variable(glorot(pair)) for pair in pairwise(sizes)]
        self.mlp = [*kernels, *(tf.Variable(tf.zeros([size])) for size in sizes[1:])]
        self._mlp_slots = [tf.Variable(tf.fill(one.shape, case.accumulator)) for one in self.mlp]
        rows, columns = np.tril_indices(case.tables, -1)
        self._pairs = (rows * case.tables + columns).astype(np.int32)

    def _logits(self, ids: Any) -> Any:
        vectors = tf.stack([tf.nn.embedding_lookup(one, ids[:, t]) for t, one in enumerate(self.tables)], axis=1)
        products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, self._case.tables**2])
        hidden, layers = tf.gather(products, self._pairs, axis=1), len(self.mlp) // 2
        for k in range(layers):
            hidden = tf.matmul(hidden, self.mlp[k]) + self.mlp[layers + k]
            hidden = tf.nn.relu(hidden) if k < layers - 1 else hidden
        return hidden[:, 0]

    def step(self, ids: Any, labels: Any) -> Any:
        """One step; the loss before it."""
        shards = [shard for table in self.tables for shard in table.variables]
        slots = [shard for slot in self._slots for shard in slot.variables]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=self._logits(ids)))
        found = tape.gradient(loss, [*shards, *self.mlp])
        for gradient, weights, slot in zip(found, [*shards, *self.mlp], [*slots, *self._mlp_slots], strict=True):
            self._apply(gradient, weights, slot)
        return loss

    def _apply(self, gradient: Any, weights: Any, slot: Any) -> None:
        rate = self._case.rate
        if not isinstance(gradient, tf.IndexedSlices):
            with tf.device(weights.device):
                tf.raw_ops.ResourceApplyAdagradV2(
                    var=weights.handle, accum=slot.handle, lr=rate, epsilon=_EPSILON, grad=gradient
                )
            return
        rows, places = tf.unique(gradient.indices)
        sums = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
        with tf.device(weights.device):
            tf.raw_ops.ResourceSparseApplyAdagradV2(
                var=weights.handle, accum=slot.handle, lr=rate, epsilon=_EPSILON, grad=sums, indices=rows
            )


def build(case: StrategyCase, ports: Sequence[Any]) -> TrainSteps:
    """See :data:`~benchmarks.support.strategy_case.BuildSide`; ``ports``: of the cluster."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(_cluster(ports), rpc_layer="grpc")
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(_SHARD_BYTES, case.servers)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = _Model(case)

    def events() -> Any:
        return tf.data.Dataset.from_tensor_slices(case.events()).repeat().prefetch(2)

    iterator = iter(coordinator.create_per_worker_dataset(tf.function(events)))

    @tf.function
    def step(batches: Any) -> Any:
        return strategy.run(model.step, args=next(batches))

    def train(count: int) -> TrainedSteps:
        began = time.perf_counter()
        losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(count)]
        coordinator.join()
        secs = time.perf_counter() - began
        return TrainedSteps(secs, float(np.mean([one.fetch() for one in losses])))

    return train


if __name__ == "__main__":
    _serve([int(port) for port in sys.argv[1:-2]], sys.argv[-2], int(sys.argv[-1]))
