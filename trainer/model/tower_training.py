"""The module of one tower in training on the workers of its tower: its outputs, its gradients, and the updates of its weights.

A job whose tables are exchanged by towers applies a module before outputs leave the tower's hosts; its weights are on the tower's workers only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.model.dense_updates import SLOTS, updated
from trainer.model.inputs import InputLayout
from trainer.model.mlp import SeededLayers, trainable_of
from trainer.model.tower_modules import dcn_towers, dlrm_towers
from trainer.model.traced import Traced

Array = np.ndarray[Any, np.dtype[Any]]


class TrainedTower:
    """A :class:`~trainer.embedding.towers.tower_module.TowerModule` of the model of ``config``, with its dense optimizer.

    The initial weights are those that the module has in a model on one process. The inputs of a DLRM must all have the model's ``dim``: those
    that a model projects to it are not compressed on the hosts of a tower yet. Raises :class:`ConfigError`, also for a model without towers.
    """

    def __init__(self, layout: InputLayout, config: TrainConfig, tower: int) -> None:
        if config.network == "dlrm" and any(one.width != config.dim for one in layout.features):
            raise ConfigError("the inputs of a tower on its own hosts must have the dim of the model", where="dims", value=dict(config.dims),
                              allowed=str(config.dim), next_step="leave dims out")  # fmt: skip
        towers = (dcn_towers if config.network == "dcn" else dlrm_towers)(layout, config, SeededLayers(config))
        if towers is None:
            raise ConfigError("a tower must be one of the model's tower_modules", where="tower_modules", value=None,
                              next_step="give tower_modules in the options")  # fmt: skip
        self._module, shape = towers.modules[tower], towers.shapes.towers[tower]
        self.width, self.columns = shape.width, shape.columns
        self.widths = tuple(one.width for one in towers.shapes.towers)
        self.compression = towers.shapes.compression
        self._kind, self._rate = config.dense_optimizer, config.dense_learning_rate
        self._weights = trainable_of(self._module.layers)
        self._slots = [[tf.Variable(tf.fill(one.shape, first)) for first in SLOTS[self._kind]] for one in self._weights]
        self._updates = 0
        self._forward = Traced(self._module, [(None, shape.columns)])
        self._backward = Traced(self._differentiate, [(None, shape.columns), (None, shape.width)])

    @property
    def weights(self) -> Array:
        """All weights, one layer after the other, float32, flat."""
        return np.concatenate([np.ravel(one.numpy()) for one in self._weights])

    def outputs(self, activations: Array) -> Array:
        """See :class:`~trainer.embedding.towers.tower_module.TowerModule`."""
        found: Array = self._forward(activations).numpy()
        return found

    def gradients(self, activations: Array, by_outputs: Array) -> tuple[Array, Array]:
        """See :class:`~trainer.embedding.towers.tower_module.TowerModule`."""
        by_activations, *by_weights = self._backward(activations, by_outputs)
        return by_activations.numpy(), np.concatenate([np.ravel(one.numpy()) for one in by_weights])

    def _differentiate(self, activations: Any, by_outputs: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(activations)
            outputs = self._module(activations)
        found: list[Any] = tape.gradient(outputs, [activations, *self._weights], output_gradients=by_outputs)
        return found

    def apply(self, gradients: Array) -> None:
        """See :class:`~trainer.embedding.towers.tower_module.TowerModule`."""
        sizes = [int(np.prod(one.shape)) for one in self._weights]
        parts = np.split(gradients, np.cumsum(sizes)[:-1])
        step = tf.constant(self._updates, tf.float32)
        for variable, slots, part in zip(self._weights, self._slots, parts, strict=True):
            gradient = tf.constant(part.reshape(variable.shape))
            after, *slots_after = updated(self._kind, self._rate, variable.value, gradient, slots, step)
            variable.assign(after)
            for slot, value in zip(slots, slots_after, strict=True):
                slot.assign(value)
        self._updates += 1
