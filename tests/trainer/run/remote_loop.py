"""``python -m tests.trainer.run.remote_loop ADDRESS…``: a loop over the inputs of a call, on devices of TensorFlow servers.

Prints where the devices are, and what each replica has added up of its ids and other numbers, beside what it should have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tests.support.emulated_slice import remote_strategy
from tests.trainer.tables.tpu.engines import EVENTS, engine_on, features
from tests.trainer.tables.tpu.test_call_inputs import random_batch
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.tpu.connected_slice import ConnectedSlice
from trainer.tables.tpu.remote_values import read_values, write_values

STEPS, REPLICAS = 64, 4


def main(servers: Sequence[str]) -> None:
    strategy = remote_strategy(REPLICAS, 4, servers)
    slice_ = ConnectedSlice(strategy, SparseCoreSettings())
    engine = engine_on(REPLICAS)  # of this process: its tables take no part
    devices = list(strategy.extended.worker_devices)
    sums = []
    for device in devices:
        with tf.device(device):
            sums.append(tf.Variable(tf.zeros(len(features()) + 1, tf.float64)))

    def loop(iterator, steps):
        def body(done):
            elements = strategy.experimental_local_results(next(iterator))
            for device, kept, ((ids, _), (labels,)) in zip(devices, sums, elements, strict=True):
                with tf.device(device):
                    own = [tf.cast(tf.reduce_sum(one.values), tf.float64) for one in ids]
                    kept.assign_add(tf.stack([*own, tf.cast(tf.reduce_sum(labels), tf.float64)]))
            return done + 1

        tf.while_loop(lambda done: done < steps, body, [tf.constant(0)])

    draw, rows = np.random.default_rng(1), EVENTS * REPLICAS
    batches = [
        (random_batch(draw, rows, wide=False, weighted=False, most=3), (draw.integers(0, 9, rows).astype(np.float32),))
        for _ in range(STEPS)
    ]
    run = slice_._looped(engine, tf.function(loop, autograph=False), (tf.TensorSpec([EVENTS]),))(batches)
    run()
    expected = np.zeros((REPLICAS, len(features()) + 1))
    for ids, (labels,) in batches:
        for replica in range(REPLICAS):
            first, stop = replica * EVENTS, (replica + 1) * EVENTS
            for f, feature in enumerate(features()):
                bags = [ids.ids[ids.offsets[f, b] : ids.offsets[f, b + 1]] for b in range(first, stop)]
                expected[replica, f] += sum(int(bag[: feature.max_sequence_length or None].sum()) for bag in bags)
            expected[replica, -1] += labels[first:stop].sum()
    values = draw.normal(size=(50, 3)).astype(np.float32)
    with tf.device(devices[-1]):
        variable = tf.Variable(np.zeros_like(values))
    write_values(variable, values, most_bytes=100)
    crossed = read_values(variable, most_bytes=70).tobytes() == values.tobytes()
    answer = {
        "devices": devices,
        "sums": [one.numpy().tolist() for one in sums],
        "expected": expected.tolist(),
        "crossed": crossed,
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
