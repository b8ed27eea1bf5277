"""TPU slices whose devices are emulated on the CPU of this process.

All of our code is the real one: the inputs of replicas, the configuration that TensorFlow is given, stacks and rotations, and the
variables of the tables, one part a replica. Emulated is what a device does with them: it adds the rows of a bag, as they stand in the
stacks; it updates each row once, with the sum of all replicas' gradients; and replicas run as threads in lockstep, through
TensorFlow's own threads of a ``MirroredStrategy``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import mirrored_run

from tests.support.optimizer_formulas import reference
from trainer.planning.meshes import grid_coordinates, mesh_of
from trainer.tables import FeatureSpec, IdBatch, TableSpec
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.tpu.call_inputs import CallInputs
from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.tables.tpu.slice_watch import SliceWatch, wait_for_servers, watch_slice
from trainer.tables.tpu.slices import CallProgram, DenseStep, Predict
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine
from trainer.tables.tpu.table_states import PARAMETERS
from trainer.tables.tpu.tpu_embedding_engine import TpuEmbeddingEngine


class _EmulatedDevices(TpuEngine):
    """The lookups and updates of a slice's devices, on the variables of the tables."""

    def _look_up(self, ids, gains, *, training):
        """The activations of this replica: its bags' rows, read where the layout has them, times what each id counts for."""
        bags = [
            (of.row_splits.numpy(), of.values.numpy(), by.values.numpy()) for of, by in zip(ids, gains, strict=True)
        ]
        outputs = []
        for feature, (splits, ids, gains) in zip(self.spread, bags, strict=True):
            rows = _quantized(feature.table, self._rows(feature.table, PARAMETERS, ids))
            out = np.zeros((len(splits) - 1, feature.table.dim), np.float32)
            np.add.at(out, _bag_of(splits), gains[:, None] * rows)
            outputs.append(tf.constant(out))
        return outputs, bags

    def _update(self, gradients, kept):
        """Wait for all replicas, then update every distinct row once."""
        context = tf.distribute.get_replica_context()
        self._sent[int(context.replica_id_in_sync_group)] = kept, [one.numpy() for one in gradients]
        context.merge_call(lambda strategy: self._update_rows())

    def _update_rows(self):
        for table in self.spread_tables:
            ids, parts = [np.zeros(0, np.int64)], [np.zeros((0, table.dim), np.float32)]
            for _, (bags, gradients) in sorted(self._sent.items()):
                for feature, (splits, own, gains), by_bag in zip(self.spread, bags, gradients, strict=True):
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
        found, parts = np.zeros((len(rows), place.dim), np.float32), place.parts_of(rows)
        for part in np.unique(parts).tolist():
            own = parts == part
            found[own] = place.read(part, self._read_part(place.stack, part)[name], rows[own])
        return found

    def _write_rows(self, table: TableSpec, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        place = self.places()[table.name]
        parts = place.parts_of(rows)
        for part in np.unique(parts).tolist():
            own, arrays = parts == part, self._read_part(place.stack, part)
            place.write(part, arrays[name], rows[own], values[own])
            self._write_part(place.stack, part, arrays)


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

    def _build_spread(self):
        """Make the hosts' variables; loading them into the hardware and retrieving them is nothing here."""
        embedding = self.embedding
        embedding._get_and_update_output_shapes_from_input()
        embedding._config_proto = embedding._create_config_proto()
        embedding._variables = embedding._create_variables_and_slots()
        embedding._built = True
        embedding._load_variables = embedding._retrieve_variables = lambda: None


class EmulatedCollectives:
    """See :class:`~trainer.model.sharded_step.Collectives`: each sum over a group is one over all replicas of what the group's have in its row."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas

    def replica(self):
        return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)

    def total(self, value):
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)

    def reduce_scatter(self, flat, groups):
        group, place = self._place(groups)
        placed = tf.one_hot(group, len(groups))[:, None] * flat
        own = self.total(placed)[group]
        return tf.reshape(own, [len(groups[0]), -1])[place]

    def all_gather(self, part, groups):
        group, _ = self._place(groups)
        placed = tf.one_hot(self.replica(), self._replicas)[:, None] * part
        return tf.reshape(tf.gather(self.total(placed), tf.constant(groups)[group]), [-1])

    def _place(self, groups):
        """The group of this replica, and its place in it."""
        found = {device: (g, k) for g, group in enumerate(groups) for k, device in enumerate(group)}
        return tf.unstack(tf.constant([found[replica] for replica in range(self._replicas)])[self.replica()])


class EmulatedSlice:
    """A :class:`~trainer.tables.tpu.slices.TpuSlice`; without ``sparse_cores`` one of v2 to v4.

    ``servers``: addresses of TensorFlow servers, each of which has equally many of the devices: variables, inputs and the dense parts of
    :meth:`dense_program` are there.
    """

    def __init__(
        self,
        replicas: int = 2,
        *,
        sparse_cores: int = 4,
        settings: SparseCoreSettings | None = None,
        servers: Sequence[str] = (),
    ) -> None:
        self.replicas, self.sparse_cores, self.holds_tables = replicas, sparse_cores, True
        self.machines = max(len(servers), 1)
        sides = [side for side in (1, 2, 4, 8) if replicas % side == 0 and side * side <= replicas]
        self.mesh = mesh_of(grid_coordinates((sides[-1], replicas // sides[-1])))
        self.collectives = EmulatedCollectives(replicas)
        self._settings = settings or SparseCoreSettings()
        #: Of each step without tables, the bytes that enter all devices and those that leave them.
        self.transfers: list[tuple[int, int]] = []
        #: The batches of each call of a program that scores.
        self.scored_steps: list[int] = []
        self.strategy = (
            remote_strategy(replicas, sparse_cores, servers)
            if servers
            else planned_strategy(PlannedSlice(replicas, sparse_cores=sparse_cores), on_cpu=True)
        )
        self._hosts = [f"/job:worker/replica:0/task:{k}/device:CPU:0" for k in range(len(servers))] or ["/device:CPU:0"]
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
        inputs = CallInputs(engine, (), machines=self.machines)

        def run(batch):
            (elements,) = self._elements(inputs, [(batch, ())])
            return np.concatenate(self._run(lambda one: engine.lookup(one[0], training=False)[0].numpy(), elements))

        return run

    def update(self, engine: TpuEngine) -> Callable[[IdBatch, np.ndarray], None]:
        inputs = CallInputs(engine, (tf.TensorSpec([engine.events, engine.width]),), machines=self.machines)

        def replica(element):
            ids, (gradients,) = element
            _, kept = engine.lookup(ids)
            engine.apply_gradients(gradients, kept)

        def run(batch, gradients):
            (elements,) = self._elements(inputs, [(batch, (gradients,))])
            self._run(replica, elements)

        return run

    def _elements(self, inputs: CallInputs, batches) -> list[list[Any]]:
        """What each replica reads in each step."""
        per = self.replicas // self.machines
        of_machines = []
        for machine, arrays in enumerate(inputs.pack(batches)):
            with tf.device(self._hosts[machine]):
                drawn = iter(inputs.elements(arrays))
                of_machines.append([next(drawn) for _ in range(per * len(batches))])
        return [
            [one for found in of_machines for one in found[step * per : (step + 1) * per]]
            for step in range(len(batches))
        ]

    def training(self, engine: TpuEngine, dense_step: DenseStep, other_specs: tuple[Any, ...]) -> CallProgram:
        inputs = CallInputs(engine, other_specs, machines=self.machines)

        def look_up(element):
            return engine.look_up_spread(element[0])

        def dense(step):
            (found, kept), (inputs, others) = step
            return dense_step(engine.activations(found, inputs), *others), (kept, inputs)

        def update(found):
            engine.apply_gradients(*found)

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

        def begin(batches):
            steps = self._elements(inputs, batches)
            return lambda: (pipelined if engine.is_pipelined else serial)(steps)

        return begin

    def scoring(self, engine: TpuEngine, predict: Predict, other_specs: tuple[Any, ...]) -> CallProgram:
        inputs = CallInputs(engine, other_specs, machines=self.machines)

        def replica(element):
            ids, others = element
            predict(engine.lookup(ids, training=False)[0], *others)

        def begin(batches):
            steps = self._elements(inputs, batches)

            def run():
                self.scored_steps.append(len(batches))
                for step in steps:
                    self._run(replica, step)

            return run

        return begin

    def dense_program(self, step: Callable[[Any], Any]) -> _EmulatedProgram:
        """All replicas in one graph, as a slice has them in one program."""

        def traced(*parts):
            return self._run(step, parts)

        return _EmulatedProgram(self, tf.function(traced, autograph=False))

    def _run(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """What ``function`` returns on each replica for its argument."""
        found: list[Any] = [None] * self.replicas

        def replica():
            number = int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))
            found[number] = function(arguments[number])

        with self.strategy.scope():
            mirrored_run.call_for_each_replica(self.strategy, replica, (), {})
        return found


class _EmulatedProgram:
    """A :class:`~trainer.tables.tpu.slices.DenseProgram`. The slice notes the bytes of each step."""

    def __init__(self, slice_: EmulatedSlice, program: Any) -> None:
        self._slice, self._program = slice_, program

    def send(self, packed: np.ndarray) -> tuple[int, list[Any]]:
        devices = self._slice.strategy.extended.worker_devices
        sent = []
        for device, part in zip(devices, np.split(packed, len(devices)), strict=True):
            with tf.device(device):
                sent.append(tf.constant(part))
        return packed.nbytes, sent

    def run(self, sent: tuple[int, list[Any]]) -> np.ndarray:
        entered_bytes, parts = sent
        found = np.stack([one.numpy() for one in self._program(*parts)])
        self._slice.transfers.append((entered_bytes, found.nbytes))
        return found


def remote_strategy(replicas: int, sparse_cores: int, servers: Sequence[str]) -> Any:
    """A strategy whose devices are CPUs of TensorFlow servers, which this process connects to."""
    answers = wait_for_servers(servers)
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": list(servers)}))
    watch_slice(SliceWatch(answers, silence_secs=3.0), lambda lost: os._exit(lost.exit_status), grace_secs=2.0)
    per = replicas // len(servers)
    devices = [f"/job:worker/replica:0/task:{r // per}/device:CPU:{r % per}" for r in range(replicas)]
    return planned_strategy(PlannedSlice(replicas, len(servers), sparse_cores, "worker"), devices=devices)


def _bag_of(splits: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(splits) - 1), np.diff(splits))


def _quantized(table: TableSpec, rows: np.ndarray) -> np.ndarray:
    if table.quantization is None:
        return rows
    lower, upper = table.quantization.lower, table.quantization.upper
    quantum = (upper - lower) / (table.quantization.num_buckets - 1)
    levels = np.round((np.clip(rows, lower, upper) - lower) / quantum)
    return (levels * quantum + lower).astype(np.float32)
