"""The inputs of a call of 64 steps on a slice: four arrays a machine, against a tensor for each input of each replica, as ``tf.data`` takes from a generator.

``python -m benchmarks.call_inputs`` prints, for both, the time and the processor time until all steps of a call are read, by turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

from trainer.tables import Adagrad, FeatureSpec, IdBatch, TableSpec
from trainer.tables.tpu.call_inputs import CallInputs
from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.host_inputs import bags_of, replica_inputs
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.tables.tpu.slices import StepInputs

STEPS = 64


def main() -> None:
    """Print the figures."""
    import tensorflow as tf

    from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine

    options = _options()
    features = [FeatureSpec(f"f{k}", TableSpec(f"t{k}", 1000, 16, Adagrad(0.1), "sum")) for k in range(options.inputs)]
    with planned_strategy(PlannedSlice(options.devices), on_cpu=True).scope():
        engine = SparseCoreEngine(features, seed=0, events_per_replica=options.events)
    specs = (tf.TensorSpec([options.events, options.dense]), tf.TensorSpec([options.events]))
    batches = [_batch(options)] * STEPS
    inputs = CallInputs(engine, specs)

    def packed() -> Any:
        (arrays,) = inputs.pack(batches)
        return inputs.elements(arrays)

    sides: dict[str, Callable[[], Any]] = {
        "a tensor for each input": lambda: _generated(engine, batches, specs),
        "four arrays": packed,
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(options.rounds + 1):
        for name, make in sides.items():
            taken[name].append(_read(make, STEPS * options.devices))
    (arrays,) = inputs.pack(batches)
    events = STEPS * options.devices * options.events
    print(
        f"{STEPS} steps of {options.devices} devices with {options.events:,} events, {options.inputs} inputs of {options.ids} ids and {options.dense} numbers"
    )
    print(f"four arrays of {arrays.nbytes / 1e6:,.1f} MB, {arrays.nbytes / events:,.0f} bytes per event, for a call")
    best = {name: [median(column) for column in zip(*values[1:], strict=True)] for name, values in taken.items()}
    for name, (wall_secs, cpu_secs) in best.items():
        print(
            f"{name:>24}: {wall_secs:7.2f} s, processor {cpu_secs:7.2f} s, {events / wall_secs / 1e6:6.2f} M events/s"
        )
    first, second = best.values()
    print(
        f"four arrays take {second[0] / first[0]:.2f}x of the time and {second[1] / first[1]:.2f}x of the processor time"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=26)
    parser.add_argument("--ids", type=int, default=1, help="of each input of an event")
    parser.add_argument("--dense", type=int, default=13, help="numbers of an event")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--events", type=int, default=512, help="of a device in a step")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _batch(options: argparse.Namespace) -> StepInputs:
    draw, rows = np.random.default_rng(0), options.devices * options.events
    ends = np.arange(options.inputs * rows + 1, dtype=np.int64) * options.ids
    offsets = np.stack([ends[f * rows : (f + 1) * rows + 1] for f in range(options.inputs)])
    ids = draw.integers(0, 1000, ends[-1]).astype(np.int32)
    dense = draw.normal(size=(rows, options.dense)).astype(np.float32)
    return IdBatch(ids, offsets), (dense, np.zeros(rows, np.float32))


def _generated(engine: TpuEngine, batches: list[StepInputs], specs: tuple[Any, ...]) -> Any:
    """The elements of all replicas from a generator, a ragged tensor for each input."""
    import tensorflow as tf

    def elements() -> Iterator[Any]:
        for batch, others in batches:
            for replica in range(engine.replicas):
                made = replica_inputs(batch, engine.features, replica, engine.events)
                ids = tuple(tf.RaggedTensor.from_row_splits(tf.constant(one.ids.astype(np.int64)), tf.constant(one.splits), validate=False)
                            for one in made)  # fmt: skip
                gains = tuple(of.with_values(tf.constant(one.gains)) for of, one in zip(ids, made, strict=True))
                own = slice(replica * engine.events, (replica + 1) * engine.events)
                yield (ids, gains), tuple(one[own] for one in others)

    def ragged(dtype: Any) -> tuple[Any, ...]:
        shapes = [[bags_of(feature, engine.events), None] for feature in engine.features]
        return tuple(tf.RaggedTensorSpec(shape, dtype, row_splits_dtype=tf.int64) for shape in shapes)

    signature = ((ragged(tf.int64), ragged(tf.float32)), specs)
    return tf.data.Dataset.from_generator(elements, output_signature=signature)


def _read(make: Callable[[], Any], count: int) -> tuple[float, float]:
    """Seconds, and seconds of processors, to make the elements of a call and read them in a program."""
    import tensorflow as tf

    began, began_cpu = time.perf_counter(), time.process_time()

    @tf.function
    def read(iterator: Any) -> None:
        for _ in tf.range(count):
            next(iterator)

    read(iter(make()))
    return time.perf_counter() - began, time.process_time() - began_cpu


if __name__ == "__main__":
    main()
