"""The dense part of a model on a TPU slice whose tables are on parameter servers: both papers' accelerators over servers.

Looked-up bags enter the program, and the gradients of the bags leave it: one array each way and replica, see
:mod:`trainer.model.packed_step`. The dense weights stay on the devices, with a copy on each, and are read for a checkpoint alone. Lookups
and updates are those of the servers, in the order of :class:`~trainer.run.weights.step_pipeline.StepPipeline`. That is the division of work of
Persia (Lian et al., KDD 2022, arXiv:2111.05897).

Several hosts may train so, each on a slice of its own: dense gradients are summed inside each slice, then leave it, and are summed over hosts, as those
of hosts without TPUs are.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.model.idle_units import IdleUnits
from trainer.model.inputs import InputLayout
from trainer.model.optimizers.gradient_norms import NO_NORMS, GradientNorms
from trainer.model.task_heads import AnyHead
from trainer.model.tensorflow_loading import load_tensorflow
from trainer.options.config import TrainConfig
from trainer.run.weights.slice_step import SliceStep
from trainer.tables.tpu.replica_variables import over_replicas
from trainer.tables.tpu.slices import TpuSlice
from transforms.arrays import Array

if TYPE_CHECKING:
    from trainer.model.dense_model import DenseModel


class SliceDense:
    """See :class:`~trainer.run.weights.dense_step.TrainedDense`: a step is one call of a program on all replicas of ``slice_``.

    ``hosts``: with a slice each, which train the events of a step together. With several a step is :meth:`gradients` and :meth:`apply`.
    Loads and configures TensorFlow.
    """

    def __init__(
        self,
        layout: InputLayout,
        config: TrainConfig,
        head: AnyHead,
        slice_: TpuSlice,
        *,
        hosts: int = 1,
    ) -> None:
        load_tensorflow()
        from trainer.model.dense_step import DensePart
        from trainer.model.packed_step import PackedStep
        from trainer.model.tensorflow_settings import prepare_tensorflow

        prepare_tensorflow(config)
        self._head, self._slice = head, slice_
        rows = config.rows_of_host(hosts)
        self._dense = DensePart.build(layout, config, head, rows=rows)
        self._packed = PackedStep.of(self._dense, layout, -(-rows // slice_.replicas))
        # hosts with a slice each give its devices segments of the gradients, and each device updates all weights
        self._step = SliceStep(self._dense, slice_, sharded_bytes=None if hosts == 1 else sys.maxsize)
        self._state = self._step.new_state()
        self._run = slice_.dense_program(self._replica_step)
        self._differentiate = slice_.dense_program(self._replica_gradients)
        self._update = slice_.dense_program(self._replica_update)
        #: The inputs on the devices of steps that have not begun, with the arrays that they were made from.
        self._sent: deque[tuple[Array, Array, Any]] = deque()

    def _replica_step(self, packed: Any) -> Any:
        answer, state = self._packed.run(self._step.step, self._state.read(), packed)
        self._state.write(state)
        return answer

    def _replica_gradients(self, packed: Any) -> Any:
        answer, state = self._packed.differentiate(
            self._state.read(), packed, _replica(), replicas=self._slice.replicas, total_of=over_replicas
        )
        self._state.write(state)
        return answer

    def _replica_update(self, segment: Any) -> Any:
        import tensorflow as tf

        self._state.write(
            self._packed.update(
                self._state.read(), segment, _replica(), replicas=self._slice.replicas, total_of=over_replicas
            )
        )
        return tf.zeros([0])

    def send(self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array) -> None:
        """See :meth:`TrainedDense.send <trainer.run.weights.dense_step.TrainedDense.send>`: in one array, while the program runs."""
        packed = self._pack(activations, linear, dense, labels, weights)
        self._sent.append((activations, weights, self._run.send(packed)))

    def _on_devices(self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array) -> Any:
        """The input of a step on the devices: that of :meth:`send`, if these arrays were sent."""
        while self._sent:
            of_activations, of_weights, sent = self._sent.popleft()
            if of_activations is activations:
                # without an event a host's weights are others than those of its batch
                return sent if of_weights is weights else self._run.send(self._pack(activations, linear, dense, labels, weights))  # fmt: skip
        return self._run.send(self._pack(activations, linear, dense, labels, weights))

    def step(
        self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
    ) -> tuple[Array, Array, Array]:
        """See :meth:`DenseModel.step <trainer.model.dense_model.DenseModel.step>`."""
        answers = self._run.run(self._on_devices(activations, linear, dense, labels, weights))
        found = self._packed.unpack(answers, len(weights))
        self._dense.model.count_units(found.units_on)
        return found.logits, found.deep, found.linear

    def _pack(self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array) -> Array:
        targets = np.asarray(self._head.targets(labels), np.float32)
        return self._packed.pack(activations, linear, dense, targets, weights)

    @property
    def sizes(self) -> list[int]:
        """See :attr:`DenseModel.sizes <trainer.model.dense_model.DenseModel.sizes>`."""
        return self._dense.model.sizes

    def gradients(
        self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
    ) -> tuple[Array, Array, Array, Array]:
        """See :meth:`DenseModel.gradients <trainer.model.dense_model.DenseModel.gradients>`."""
        answers = self._differentiate.run(self._on_devices(activations, linear, dense, labels, weights))
        found = self._packed.unpack(answers, len(weights))
        return found.logits, found.deep, found.linear, self._packed.dense_gradients(answers)

    def apply(self, gradients: Array) -> None:
        """See :meth:`DenseModel.apply <trainer.model.dense_model.DenseModel.apply>`."""
        self._dense.model.count_units_of(gradients)
        self._update.run(self._update.send(self._packed.pack_gradients(gradients, self._slice.replicas)))

    def host_model(self) -> DenseModel:
        """See :meth:`TrainedDense.host_model <trainer.run.weights.dense_step.TrainedDense.host_model>`: a copy of the weights of one replica."""
        self._dense.write_state(self._state.values())
        return self._dense.model

    @property
    def idle_units(self) -> IdleUnits | None:
        """See :attr:`DenseModel.idle_units <trainer.model.dense_model.DenseModel.idle_units>`."""
        return self._dense.model.idle_units

    @property
    def gradient_norms(self) -> GradientNorms:
        """None: the gradients stay on the devices."""
        return NO_NORMS

    def state(self) -> dict[str, Array]:
        """See :meth:`DenseModel.state <trainer.model.dense_model.DenseModel.state>`."""
        return self.host_model().state()

    def load_state(self, state: Mapping[str, Array]) -> None:
        """See :meth:`DenseModel.load_state <trainer.model.dense_model.DenseModel.load_state>`."""
        self._dense.model.load_state(state)
        self._state.assign(self._dense.read_state())


def _replica() -> Any:
    """The number of this replica, inside a step."""
    import tensorflow as tf

    return tf.distribute.get_replica_context().replica_id_in_sync_group
