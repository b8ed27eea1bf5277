"""TPU slices whose devices are emulated on the CPU of this process.

All of our code is the real one: the inputs of replicas, the configuration that TensorFlow is given, stacks and rotations, and the
variables of the tables, one part a replica. Emulated is what a device does with them: it adds the rows of a bag, as they stand in the
stacks; it updates each row once, with the sum of all replicas' gradients; and replicas run as threads in lockstep, through
TensorFlow's own threads of a ``MirroredStrategy``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import mirrored_run

from tests.support.optimizer_formulas import reference
from trainer.tables import FeatureSpec, IdBatch, TableSpec
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.tables.tpu.slices import DenseStep, Predict, StepInputs
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine
from trainer.tables.tpu.table_states import PARAMETERS
from trainer.tables.tpu.tpu_embedding_engine import TpuEmbeddingEngine
from trainer.tables.tpu.training_loop import replica_elements


class _EmulatedDevices(TpuEngine):
    """The lookups and updates of a slice's devices, on the variables of the tables."""

    def lookup(self, inputs, *, training=True):
        """The activations of this replica: its bags' rows, read where the layout has them, times what each id counts for."""
        bags = [(ids.row_splits.numpy(), ids.values.numpy(), gains.values.numpy())
                for ids, gains in zip(*inputs, strict=True)]  # fmt: skip
        outputs = []
        for feature, (splits, ids, gains) in zip(self.features, bags, strict=True):
            rows = _quantized(feature.table, self._rows(feature.table, PARAMETERS, ids))
            out = np.zeros((len(splits) - 1, feature.table.dim), np.float32)
            np.add.at(out, _bag_of(splits), gains[:, None] * rows)
            outputs.append(tf.constant(out))
        return self.joined(outputs), bags

    def apply_gradients(self, gradients, kept):
        """Wait for all replicas, then update every distinct row once."""
        context = tf.distribute.get_replica_context()
        self._sent[int(context.replica_id_in_sync_group)] = kept, [one.numpy() for one in self._split(gradients)]
        context.merge_call(lambda strategy: self._update_rows())

    def _update_rows(self):
        for table in self.tables:
            ids, parts = [np.zeros(0, np.int64)], [np.zeros((0, table.dim), np.float32)]
            for _, (bags, gradients) in sorted(self._sent.items()):
                for feature, (splits, own, gains), by_bag in zip(self.features, bags, gradients, strict=True):
                    if feature.table.name == table.name:
                        ids.append(own)
                        parts.append(gains[:, None] * by_bag[_bag_of(splits)])
            rows, inverse = np.unique(np.concatenate(ids), return_inverse=True)
            sums = np.zeros((len(rows), table.dim), np.float32)
            np.add.at(sums, inverse, np.concatenate(parts))
            if len(rows):
                self._update_table(table, rows, sums)
        self._sent.clear()

    def _update_table(self, table, rows, sums):
        rate = table.optimizer.learning_rate
        rate = self._rates._variables[rate][1].numpy() if callable(rate) else rate
        names = [slot.name for slot in table.optimizer.slots]
        slots = [self._rows(table, name, rows).astype(np.float64) for name in names]
        weights, slots = reference(
            table.optimizer, self._rows(table, PARAMETERS, rows).astype(np.float64),
            np.concatenate([np.zeros((len(rows), 0)), *slots], axis=1), sums.astype(np.float64), rate,
        )  # fmt: skip
        for name, values in zip(
            [PARAMETERS, *names], [weights, *np.split(slots, max(len(names), 1), axis=1)], strict=False
        ):
            self._write_rows(table, name, rows, values.astype(np.float32))

    def _rows(self, table: TableSpec, name: str, rows: np.ndarray) -> np.ndarray:
        place = self.places()[table.name]
        return place.read(self._read_arrays(place.stack)[name], rows)

    def _write_rows(self, table: TableSpec, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        place = self.places()[table.name]
        arrays = self._read_arrays(place.stack)
        place.write(arrays[name], rows, values)
        self._write_arrays(place.stack, arrays)


class EmulatedSparseCoreEngine(_EmulatedDevices, SparseCoreEngine):
    """The engine of v5p, v6e and TPU7x over emulated SparseCores."""

    def __init__(self, *arguments, **settings):
        self._sent = {}
        super().__init__(*arguments, **settings)


class EmulatedTpuEmbeddingEngine(_EmulatedDevices, TpuEmbeddingEngine):
    """The engine of v2 to v4 over emulated embedding hardware, which has the tables of the hosts' variables."""

    def __init__(self, *arguments, **settings):
        self._sent = {}
        super().__init__(*arguments, **settings)

    def build(self):
        """Make the hosts' variables; loading them into the hardware and retrieving them is nothing here."""
        embedding = self.embedding
        embedding._get_and_update_output_shapes_from_input()
        embedding._config_proto = embedding._create_config_proto()
        embedding._variables = embedding._create_variables_and_slots()
        embedding._built = True
        embedding._load_variables = embedding._retrieve_variables = lambda: None
        self._write_tables({})


class EmulatedSlice:
    """A :class:`~trainer.tables.tpu.slices.TpuSlice`; without ``sparse_cores`` one of v2 to v4."""

    def __init__(self, replicas: int = 2, *, sparse_cores: int = 4, settings: SparseCoreSettings | None = None) -> None:
        self.replicas, self.sparse_cores, self.holds_tables = replicas, sparse_cores, True
        self._settings = settings or SparseCoreSettings()
        #: Of each step without tables, the bytes that enter all devices and those that leave them.
        self.transfers: list[tuple[int, int]] = []
        #: The batches of each call of a program that scores.
        self.scored_steps: list[int] = []
        self.strategy = planned_strategy(PlannedSlice(replicas, sparse_cores=sparse_cores), on_cpu=True)
        self.strategy.extended._get_replica_id_in_sync_group = lambda replica: replica
        # a packed variable finds its parts by their devices, which are one here
        self.strategy._enable_packed_variable_in_eager_mode = False

    def make_engine(
        self,
        features: Sequence[FeatureSpec],
        *,
        seed: int,
        events_per_replica: int,
        pipelined: bool,
        settings: SparseCoreSettings | None = None,
    ) -> TpuEngine:
        options = {"seed": seed, "events_per_replica": events_per_replica, "pipelined": pipelined}
        with self.strategy.scope():
            if self.sparse_cores:
                engine = EmulatedSparseCoreEngine(features, settings=settings or self._settings, **options)
            else:
                engine = EmulatedTpuEmbeddingEngine(features, **options)
            engine.build()
        return engine

    def lookup(self, engine: TpuEngine) -> Callable[[IdBatch], np.ndarray]:
        def run(batch):
            found = self._run(lambda inputs: engine.lookup(inputs, training=False)[0].numpy(), engine.inputs(batch))
            return np.concatenate(found)

        return run

    def update(self, engine: TpuEngine) -> Callable[[IdBatch, np.ndarray], None]:
        def replica(element):
            inputs, gradients = element
            _, kept = engine.lookup(inputs)
            engine.apply_gradients(gradients, kept)

        def run(batch, gradients):
            parts = [tf.constant(part) for part in np.split(gradients, self.replicas)]
            self._run(replica, list(zip(engine.inputs(batch), parts, strict=True)))

        return run

    def training(
        self, engine: TpuEngine, dense_step: DenseStep, other_specs: tuple[Any, ...]
    ) -> Callable[[Sequence[StepInputs]], None]:
        def look_up(element):
            return engine.lookup(element[0])

        def dense(step):
            (activations, kept), (_, others) = step
            return dense_step(activations, *others), kept

        def update(found):
            engine.apply_gradients(*found)

        def elements_of(batches):
            drawn = list(replica_elements(engine, lambda: batches, other_specs))
            return [drawn[k : k + self.replicas] for k in range(0, len(drawn), self.replicas)]

        def dense_of(looked_up, step):
            return self._run(dense, list(zip(looked_up, step, strict=True)))

        def serial(steps):
            for step in steps:
                self._run(update, dense_of(self._run(look_up, step), step))

        def pipelined(steps):
            """The order of TensorFlow's pipelining pass: see tests/trainer/tables/tpu/test_training_loop.py."""
            looked_up = self._run(look_up, steps[0])
            for k, step in enumerate(steps):
                found = dense_of(looked_up, step)
                if k + 1 < len(steps):
                    looked_up = self._run(look_up, steps[k + 1])
                self._run(update, found)

        def run(batches):
            (pipelined if engine.is_pipelined else serial)(elements_of(batches))

        return run

    def scoring(
        self, engine: TpuEngine, predict: Predict, other_specs: tuple[Any, ...]
    ) -> Callable[[Sequence[StepInputs]], None]:
        def replica(element):
            inputs, others = element
            predict(engine.lookup(inputs, training=False)[0], *others)

        def run(batches):
            drawn = list(replica_elements(engine, lambda: batches, other_specs))
            self.scored_steps.append(len(batches))
            for k in range(0, len(drawn), self.replicas):
                self._run(replica, drawn[k : k + self.replicas])

        return run

    def dense_program(self, step: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
        """All replicas in one graph, as a slice has them in one program."""

        def traced(*parts):
            return self._run(step, parts)

        program = tf.function(traced, autograph=False)

        def run(packed):
            found = np.stack([one.numpy() for one in program(*map(tf.constant, np.split(packed, self.replicas)))])
            self.transfers.append((packed.nbytes, found.nbytes))
            return found

        return run

    def _run(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """What ``function`` returns on each replica for its argument."""
        found: list[Any] = [None] * self.replicas

        def replica():
            number = int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))
            found[number] = function(arguments[number])

        with self.strategy.scope():
            mirrored_run.call_for_each_replica(self.strategy, replica, (), {})
        return found


def _bag_of(splits: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(splits) - 1), np.diff(splits))


def _quantized(table: TableSpec, rows: np.ndarray) -> np.ndarray:
    if table.quantization is None:
        return rows
    lower, upper = table.quantization.lower, table.quantization.upper
    quantum = (upper - lower) / (table.quantization.num_buckets - 1)
    levels = np.round((np.clip(rows, lower, upper) - lower) / quantum)
    return (levels * quantum + lower).astype(np.float32)
