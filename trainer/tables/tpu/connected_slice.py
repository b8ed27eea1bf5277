"""The TPUs that TensorFlow is connected to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.meshes import SliceMesh, mesh_of
from trainer.tables.batches import IdBatch
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import FeatureSpec
from trainer.tables.tpu.call_inputs import CallInputs
from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.slice_collectives import SliceCollectives
from trainer.tables.tpu.slice_servers import lost_slice, slice_servers
from trainer.tables.tpu.slice_watch import OnLost, SliceWatch, wait_for_servers, watch_slice
from trainer.tables.tpu.slices import CallProgram, DenseProgram, DenseStep, Predict, StepInputs
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine, clear_overflow
from trainer.tables.tpu.tpu_embedding_engine import TpuEmbeddingEngine
from trainer.tables.tpu.training_loop import scoring_loop, training_loop
from transforms.arrays import Array

#: The name of the TPUs of this machine.
LOCAL = "local"
_NAMES = f"{LOCAL}, on a machine with TPUs, the name of a TPU, or a TensorFlow server for each machine of a slice, as host:port,host:port"
_NEXT_STEP = ("run on a machine of a TPU slice, in the image with TensorFlow for TPUs (docs/tpu.md), or train with the cpu engine: leave "
              "--tpu and the option engine out")  # fmt: skip


def connect(name: str, settings: SparseCoreSettings, on_lost: OnLost) -> ConnectedSlice:
    """Set up the TPUs of this machine, ``local``, those of a TPU name, or those of the machines that TensorFlow servers run on.

    Servers are given as ``host:port,host:port``, one for each machine of the slice, in the order of the machines (``headrace role tpu-server``). They
    may be a while in starting.

    Args:
        settings: of the engines on SparseCores.
        on_lost: called in another thread when one of the servers is lost: TensorFlow may wait for it for ever, so the process must end.

    Raises :class:`ConfigError` if there are no TPUs, and :class:`SliceLost` for servers that do not start.
    """
    import tensorflow as tf

    if name != LOCAL and not name.strip():
        raise ConfigError("a TPU must be named", where="--tpu", value=name, allowed=_NAMES)
    servers = slice_servers(name)
    answers = wait_for_servers(servers)
    try:
        tpu = ",".join(f"grpc://{server}" for server in servers) or name
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        if name != LOCAL:
            tf.config.experimental_connect_to_cluster(resolver)
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError, ImportError) as error:
        raise ConfigError("the tpu engine must reach a TPU", where=f"--tpu {name}", value=f"{type(error).__name__}: {str(error)[:300]}",
                          allowed=_NAMES, next_step=_NEXT_STEP) from error  # fmt: skip
    if answers:
        watch_slice(SliceWatch(answers), on_lost)
    coordinates = topology.device_coordinates.reshape(-1, topology.device_coordinates.shape[-1]).tolist()
    return ConnectedSlice(strategy, settings, mesh=mesh_of(coordinates))


class ConnectedSlice:
    """See :class:`~trainer.tables.tpu.slices.TpuSlice`. Raises :class:`ConfigError` for devices that are not in the order of their machines.

    Attributes:
        strategy: over the devices.
        machines: that have the devices.
        mesh: of the devices; without one they are a line.
        collectives: of programs on them.
    """

    def __init__(self, strategy: Any, settings: SparseCoreSettings, *, mesh: SliceMesh | None = None) -> None:
        import tensorflow as tf

        extended = strategy.extended
        devices = extended.worker_devices
        _check_order(devices)
        self.strategy, self._settings, self.machines = strategy, settings, int(extended.num_hosts)
        self.mesh = mesh or mesh_of([[device] for device in range(len(devices))])
        self.collectives = SliceCollectives(len(devices))
        self._is_remote = any(tf.DeviceSpec.from_string(device).job != "localhost" for device in devices)
        self._hardware = extended.tpu_hardware_feature
        kinds = tf.tpu.experimental.HardwareFeature.EmbeddingFeature
        self._has_sparse_cores = self._hardware.embedding_feature == kinds.V2
        self._holds_tables = bool(self._hardware.embedding_feature != kinds.UNSUPPORTED)

    @property
    def replicas(self) -> int:
        """Copies of the model, one a device."""
        return int(self.strategy.num_replicas_in_sync)

    @property
    def sparse_cores(self) -> int:
        """SparseCores of a device; 0 for the embedding hardware of v2 to v4, and without any."""
        return int(self._hardware.num_embedding_devices_per_chip) if self._has_sparse_cores else 0

    @property
    def holds_tables(self) -> bool:
        """See :attr:`TpuSlice.holds_tables <trainer.tables.tpu.slices.TpuSlice.holds_tables>`."""
        return self._holds_tables

    def make_engine(
        self,
        features: Sequence[FeatureSpec],
        *,
        seed: int,
        events_per_replica: int,
        pipelined: bool,
        settings: SparseCoreSettings | None = None,
    ) -> TpuEngine:
        """See :meth:`TpuSlice.make_engine <trainer.tables.tpu.slices.TpuSlice.make_engine>`."""
        options: dict[str, Any] = {"seed": seed, "events_per_replica": events_per_replica, "pipelined": pipelined}
        with self.strategy.scope():
            engine = (
                SparseCoreEngine(features, settings=settings or self._settings, **options)
                if self.sparse_cores
                else TpuEmbeddingEngine(features, **options)
            )
            engine.build()
        return engine

    def lookup(self, engine: TpuEngine) -> Callable[[IdBatch], Array]:
        """See :meth:`TpuSlice.lookup <trainer.tables.tpu.slices.TpuSlice.lookup>`."""
        program, inputs = self.lookup_program(engine), self.call_inputs(engine, ())

        def run(batch: IdBatch) -> Array:
            iterator = self._iterator(inputs, [(batch, ())])
            with self._running():
                return np.concatenate([part.numpy() for part in program(iterator)])

        return run

    def lookup_program(self, engine: TpuEngine) -> Any:
        """The ``tf.function`` of a lookup: from an iterator over elements to the activations of each replica."""
        import tensorflow as tf

        def replica(inputs: Any, others: Any) -> Any:
            return engine.lookup(inputs, training=False)[0]

        def traced(iterator: Any) -> Any:
            found = self.strategy.run(replica, args=next(iterator))
            return self.strategy.experimental_local_results(found)

        return tf.function(traced, autograph=False)

    def update(self, engine: TpuEngine) -> Callable[[IdBatch, Array], None]:
        """See :meth:`TpuSlice.update <trainer.tables.tpu.slices.TpuSlice.update>`."""
        import tensorflow as tf

        program = self.update_program(engine)
        inputs = self.call_inputs(engine, (tf.TensorSpec([engine.events, engine.width]),))

        def run(batch: IdBatch, gradients: Array) -> None:
            iterator = self._iterator(inputs, [(batch, (gradients,))])
            with self._running():
                program(iterator)

        return run

    def update_program(self, engine: TpuEngine) -> Any:
        """The ``tf.function`` of an update, of an iterator over elements with gradients."""
        import tensorflow as tf

        def replica(inputs: Any, others: Any) -> None:
            (gradients,) = others
            _, kept = engine.lookup(inputs)
            engine.apply_gradients(gradients, kept)

        def traced(iterator: Any) -> None:
            self.strategy.run(replica, args=next(iterator))

        return tf.function(traced, autograph=False)

    def training(self, engine: TpuEngine, dense_step: DenseStep, other_specs: tuple[Any, ...]) -> CallProgram:
        """See :meth:`TpuSlice.training <trainer.tables.tpu.slices.TpuSlice.training>`."""
        return self._looped(engine, training_loop(engine, dense_step), other_specs)

    def scoring(self, engine: TpuEngine, predict: Predict, other_specs: tuple[Any, ...]) -> CallProgram:
        """See :meth:`TpuSlice.scoring <trainer.tables.tpu.slices.TpuSlice.scoring>`."""
        return self._looped(engine, scoring_loop(engine, predict), other_specs)

    def _looped(self, engine: TpuEngine, loop: Any, other_specs: tuple[Any, ...]) -> CallProgram:
        """Calls a loop once for the batches that it is given."""
        import tensorflow as tf

        inputs = self.call_inputs(engine, other_specs)

        def begin(batches: Sequence[StepInputs]) -> Callable[[], None]:
            iterator, steps = self._iterator(inputs, batches), tf.constant(len(batches))

            def run() -> None:
                with self._running():
                    loop(iterator, steps)

            return run

        return begin

    def dense_program(self, step: Callable[[Any], Any]) -> DenseProgram:
        """See :meth:`TpuSlice.dense_program <trainer.tables.tpu.slices.TpuSlice.dense_program>`."""
        return _ConnectedProgram(self.strategy, self.traced_dense(step), self._running)

    def traced_dense(self, step: Callable[[Any], Any]) -> Any:
        """The ``tf.function`` of a step without tables: from the parts of the replicas to what each of them answers."""
        import tensorflow as tf

        def traced(values: Any) -> Any:
            return self.strategy.experimental_local_results(self.strategy.run(step, args=(values,)))

        return tf.function(traced, autograph=False)

    def call_inputs(self, engine: TpuEngine, other_specs: tuple[Any, ...]) -> CallInputs:
        """What packs the inputs of the programs of ``engine``."""
        return CallInputs(engine, other_specs, machines=self.machines)

    def _iterator(self, inputs: CallInputs, batches: Sequence[StepInputs]) -> Any:
        """The elements of each replica, on the machine that has it: its program copies what it needs to the device."""
        import tensorflow as tf

        packed = inputs.pack(batches)
        options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        with clear_errors():
            return iter(
                self.strategy.distribute_datasets_from_function(
                    lambda context: inputs.elements(packed[context.input_pipeline_id]), options
                )
            )

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Run programs on the devices: what was sent to other machines has arrived before. Raises the clear errors."""
        with clear_errors():
            if self._is_remote:
                _wait_for_machines()
            yield


class _ConnectedProgram:
    """See :class:`~trainer.tables.tpu.slices.DenseProgram`. ``running``: the context in which programs run."""

    def __init__(self, strategy: Any, program: Any, running: Callable[[], AbstractContextManager[None]]) -> None:
        self._strategy, self._program, self._running = strategy, program, running

    def send(self, packed: Array) -> Any:
        """See :meth:`DenseProgram.send <trainer.tables.tpu.slices.DenseProgram.send>`."""
        import tensorflow as tf

        devices = self._strategy.extended.worker_devices
        parts = np.split(packed, len(devices))

        def part_of(context: Any) -> Any:
            with tf.device(devices[context.replica_id_in_sync_group]):
                return tf.constant(parts[context.replica_id_in_sync_group])

        with clear_errors():
            return self._strategy.experimental_distribute_values_from_function(part_of)

    def run(self, sent: Any) -> Array:
        """See :meth:`DenseProgram.run <trainer.tables.tpu.slices.DenseProgram.run>`."""
        with self._running():
            return np.stack([one.numpy() for one in self._program(sent)])


def _wait_for_machines() -> None:
    """Wait until other machines have done what they were sent.

    TensorFlow sends operations to other machines without waiting for them, and a program that uses their results, such as iterators and
    variables, does not wait either.
    """
    from tensorflow.python.eager import context

    context.async_wait()


def _check_order(devices: Sequence[str]) -> None:
    """Raise :class:`ConfigError` unless the devices of a machine are one after another, and each machine has as many."""
    import tensorflow as tf

    tasks = [tf.DeviceSpec.from_string(device).task for device in devices]
    if tasks != sorted(tasks) or len({tasks.count(task) for task in tasks}) > 1:
        raise ConfigError("the machines of a slice must have equally many devices, in the order of the machines", where="--tpu",
                          value=", ".join(devices)[:300])  # fmt: skip


@contextmanager
def clear_errors() -> Iterator[None]:
    """Raise the clear error for ids beyond the buffers of a SparseCore, and for a machine that is lost."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        clear = clear_overflow(error) or lost_slice(error)
        if clear is None:
            raise
        raise clear from error
