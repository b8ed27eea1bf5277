"""The module of one tower in training on the workers of its tower: its outputs, its gradients, and the updates of its weights.

A job whose tables are exchanged by towers applies a module before outputs leave the tower's hosts; its weights are trained on the tower's workers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.model.mlp import trainable_of
from trainer.model.optimizers.dense_updates import updated
from trainer.model.optimizers.optimizer_slots import step_rate
from trainer.model.optimizers.rate_clock import RateClock
from trainer.model.tower_modules import TowerModules
from trainer.model.traced import Traced
from trainer.options.config import TrainConfig
from transforms.arrays import Array


class TrainedTower:
    """A :class:`~trainer.tables.routes.towers.tower_module.TowerModule` of a dense model, with the variables and the optimizer that it has there.

    Args:
        towers: the modules of the model.
        tower: which of them it is.
        slots: by weight of the module, the optimizer's variables for it.
        updates: the optimizer's variable for the number of the model's updates.
        clock: of the learning rates; a module is updated together with the tables.
    """

    def __init__(
        self,
        towers: TowerModules,
        tower: int,
        config: TrainConfig,
        slots: Sequence[Sequence[Any]],
        updates: Any,
        clock: RateClock,
    ) -> None:
        self._module, shape = towers.modules[tower], towers.shapes.towers[tower]
        self.width, self.columns = shape.width, shape.columns
        self.widths = tuple(one.width for one in towers.shapes.towers)
        self.compression = towers.shapes.compression
        self._kind, self._clock = config.dense_optimizer, clock
        self._rate = step_rate(self._kind, config.dense_learning_rate, config.batch_rows)
        self._weights, self._slots, self._all_updates = trainable_of(self._module.layers), slots, updates
        self._forward = Traced(self._module, [(None, shape.columns)])
        self._backward = Traced(self._differentiate, [(None, shape.columns), (None, shape.width)])
        self.restart()

    def restart(self) -> None:
        """Count updates on from those of the model: call it when the model's state is loaded."""
        self._updates = int(self._all_updates.numpy())

    @property
    def variables(self) -> list[Any]:
        """All that training changes: weights, then their slots."""
        return [*self._weights, *(slot for slots in self._slots for slot in slots)]

    @property
    def weights(self) -> Array:
        """All weights, one layer after the other, float32, flat."""
        return _flat(one.numpy() for one in self._weights)

    def outputs(self, activations: Array) -> Array:
        """See :class:`~trainer.tables.routes.towers.tower_module.TowerModule`."""
        found: Array = self._forward(activations).numpy()
        return found

    def gradients(self, activations: Array, by_outputs: Array) -> tuple[Array, Array]:
        """See :class:`~trainer.tables.routes.towers.tower_module.TowerModule`."""
        by_activations, *by_weights = self._backward(activations, by_outputs)
        return by_activations.numpy(), _flat(one.numpy() for one in by_weights)

    def _differentiate(self, activations: Any, by_outputs: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(activations)
            outputs = self._module(activations)
        found: list[Any] = tape.gradient(outputs, [activations, *self._weights], output_gradients=by_outputs)
        return found

    def apply(self, gradients: Array) -> None:
        """See :class:`~trainer.tables.routes.towers.tower_module.TowerModule`."""
        ends = np.cumsum([int(np.prod(one.shape)) for one in self._weights])
        step = tf.constant(self._updates, tf.float32)
        rate = self._rate if self._kind == "newton" else self._rate * self._clock.tables_share
        for variable, slots, end in zip(self._weights, self._slots, ends, strict=True):
            part = gradients[end - int(np.prod(variable.shape)) : end]
            gradient = tf.constant(part.reshape(variable.shape))
            before = [slot.value for slot in slots]
            after, *slots_after = updated(self._kind, rate, variable.value, gradient, before, step)
            variable.assign(after)
            for slot, value in zip(slots, slots_after, strict=True):
                slot.assign(value)
        self._updates += 1


def _flat(arrays: Iterable[Array]) -> Array:
    """All values, one array after the other, float32; none of a module without weights."""
    return np.concatenate([np.zeros(0, np.float32), *(np.ravel(one) for one in arrays)])
