"""The TPUs that TensorFlow is connected to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from trainer.errors import ConfigError
from trainer.tables.batches import IdBatch
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import FeatureSpec
from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.slices import DenseStep, Predict, StepInputs
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine, clear_overflow
from trainer.tables.tpu.tpu_embedding_engine import TpuEmbeddingEngine
from trainer.tables.tpu.training_loop import replica_elements, scoring_loop, training_loop
from transforms.arrays import Array

#: The name of the TPUs of this machine.
LOCAL = "local"
_NEXT_STEP = ("run on a machine of a TPU slice, in the image with TensorFlow for TPUs (docs/tpu.md), or train with the cpu engine: leave "
              "--tpu and the option engine out")  # fmt: skip


def connect(name: str, settings: SparseCoreSettings) -> ConnectedSlice:
    """Set up the TPUs of this machine, ``local``, or those of a TPU name or a gRPC address.

    ``settings``: of the engines on SparseCores. Raises :class:`ConfigError` if there are none, or if they are a slice that one process with its input cannot drive.
    """
    import tensorflow as tf

    if name != LOCAL and not name.strip():
        raise ConfigError("a TPU must be named", where="--tpu", value=name, allowed=f"{LOCAL}, or the name of a TPU")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != LOCAL:
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError, ImportError) as error:
        raise ConfigError("the tpu engine must reach a TPU", where=f"--tpu {name}", value=f"{type(error).__name__}: {str(error)[:300]}",
                          allowed=f"{LOCAL}, on a machine with TPUs, or the name of a TPU", next_step=_NEXT_STEP) from error  # fmt: skip
    return ConnectedSlice(strategy, settings)


class ConnectedSlice:
    """See :class:`~trainer.tables.tpu.slices.TpuSlice`. Raises :class:`ConfigError` for a slice of several hosts."""

    def __init__(self, strategy: Any, settings: SparseCoreSettings) -> None:
        import tensorflow as tf

        extended = strategy.extended
        if extended.num_hosts > 1:
            raise ConfigError("a slice of the tpu engine must be one machine", where="--tpu", value=f"{extended.num_hosts} hosts",
                              allowed="a slice of one host, such as v5p:2x2x1 or v6e:2x4",
                              next_step="take a slice of one host, or train with the cpu engine on all hosts")  # fmt: skip
        self.strategy, self._settings = strategy, settings
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
        program = self.lookup_program(engine)

        def run(batch: IdBatch) -> Array:
            with clear_errors():
                return np.concatenate([part.numpy() for part in program(self._iterator(engine, [(batch, ())], ()))])

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

        program, specs = self.update_program(engine), (tf.TensorSpec([engine.events, engine.width]),)

        def run(batch: IdBatch, gradients: Array) -> None:
            with clear_errors():
                program(self._iterator(engine, [(batch, (gradients,))], specs))

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

    def training(
        self, engine: TpuEngine, dense_step: DenseStep, other_specs: tuple[Any, ...]
    ) -> Callable[[Sequence[StepInputs]], None]:
        """See :meth:`TpuSlice.training <trainer.tables.tpu.slices.TpuSlice.training>`."""
        return self._looped(engine, training_loop(engine, dense_step), other_specs)

    def scoring(
        self, engine: TpuEngine, predict: Predict, other_specs: tuple[Any, ...]
    ) -> Callable[[Sequence[StepInputs]], None]:
        """See :meth:`TpuSlice.scoring <trainer.tables.tpu.slices.TpuSlice.scoring>`."""
        return self._looped(engine, scoring_loop(engine, predict), other_specs)

    def _looped(
        self, engine: TpuEngine, loop: Any, other_specs: tuple[Any, ...]
    ) -> Callable[[Sequence[StepInputs]], None]:
        """Calls a loop once for the batches that it is given."""
        import tensorflow as tf

        def run(batches: Sequence[StepInputs]) -> None:
            with clear_errors():
                loop(self._iterator(engine, batches, other_specs), tf.constant(len(batches)))

        return run

    def dense_program(self, step: Callable[[Any], Any]) -> Callable[[Array], Array]:
        """See :meth:`TpuSlice.dense_program <trainer.tables.tpu.slices.TpuSlice.dense_program>`."""
        import tensorflow as tf

        program, strategy = self.traced_dense(step), self.strategy

        def run(packed: Array) -> Array:
            parts = np.split(packed, self.replicas)
            values = strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(parts[context.replica_id_in_sync_group])
            )
            return np.stack([one.numpy() for one in program(values)])

        return run

    def traced_dense(self, step: Callable[[Any], Any]) -> Any:
        """The ``tf.function`` of a step without tables: from the parts of the replicas to what each of them answers."""
        import tensorflow as tf

        def traced(values: Any) -> Any:
            return self.strategy.experimental_local_results(self.strategy.run(step, args=(values,)))

        return tf.function(traced, autograph=False)

    def _iterator(self, engine: TpuEngine, batches: Sequence[StepInputs], other_specs: tuple[Any, ...]) -> Any:
        """The elements of each replica, which stay on the host: the program copies what it needs."""
        import tensorflow as tf

        elements = replica_elements(engine, lambda: batches, other_specs)
        options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        return iter(self.strategy.distribute_datasets_from_function(lambda context: elements, options))


@contextmanager
def clear_errors() -> Iterator[None]:
    """Raise the clear error for ids beyond the buffers of a SparseCore."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        clear = clear_overflow(error)
        if clear is None:
            raise
        raise clear from error
