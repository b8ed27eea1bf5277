"""The dense part of a training step as a function of its state: forward, backward, and the update of the dense weights.

It is the step of one replica; sums over replicas are part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

from trainer.config import TrainConfig
from trainer.model.dense_model import DenseModel
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.tpu_check.dense_updates import SLOTS, updated


@dataclass(frozen=True)
class DensePart:
    """The dense layers of a model and its dense optimizer, as functions of their state.

    Attributes:
        model: in its initial state.
        config: names the optimizer.
        tower_columns: the first columns of the engine's activations, which are the towers'; the others are the linear part's.
    """

    model: DenseModel
    config: TrainConfig
    tower_columns: int

    @classmethod
    def build(cls, layout: InputLayout, config: TrainConfig, head: AnyHead) -> DensePart:
        """The dense part of a model."""
        towers = sum(feature.width for feature in layout.features) if config.deep else 0
        return cls(DenseModel(layout, config, head), config, towers)

    def state_specs(self) -> dict[str, Any]:
        """The types of the state: weights, slots of each, random state and moving statistics, and the number of updates."""
        weights = [tf.TensorSpec(one.shape, one.dtype) for one in self.model.trainable]
        return {
            "weights": weights,
            "slots": [[spec] * len(SLOTS[self.config.dense_optimizer]) for spec in weights],
            "changing": [tf.TensorSpec(one.shape, one.dtype) for one in self.model.changing],
            "updates": tf.TensorSpec([], tf.float32),
        }

    def step(
        self, state: Mapping[str, Any], activations: Any, dense: Any, labels: Any, weights: Any, replicas: int
    ) -> tuple[Any, dict[str, Any]]:
        """The gradients of the activations, and the state after the step; the loss is the mean over the events of all replicas."""
        variables = [*self.model.trainable, *self.model.changing]
        mapping = list(zip(variables, [*state["weights"], *state["changing"]], strict=True))
        with keras.StatelessScope(state_mapping=mapping) as scope, tf.GradientTape() as tape:
            tape.watch([activations, *state["weights"]])
            columns = [self.tower_columns, activations.shape[1] - self.tower_columns]
            towers, linear = tf.split(activations, columns, axis=1)
            logits = self.model.logits(towers, linear, dense, training=True)
            total = _sum_over_replicas(tf.reduce_sum(weights), replicas)
            loss = self.model.loss(logits, labels, weights, total, replicas)
        sources = [activations, *state["weights"]]
        by_activations, *by_weights = tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        changing = [scope.get_current_value(variable) for variable in self.model.changing]
        return by_activations, {**self._update(state, by_weights, replicas), "changing": changing}

    def _update(self, state: Mapping[str, Any], gradients: Sequence[Any], replicas: int) -> dict[str, Any]:
        kind, rate = self.config.dense_optimizer, self.config.dense_learning_rate
        made = [
            updated(kind, rate, weight, _sum_over_replicas(gradient, replicas), slots, state["updates"])
            for weight, gradient, slots in zip(state["weights"], gradients, state["slots"], strict=True)
        ]
        return {
            "weights": [one[0] for one in made],
            "slots": [one[1:] for one in made],
            "updates": state["updates"] + 1.0,
        }


def _sum_over_replicas(value: Any, replicas: int) -> Any:
    return tpu_ops.cross_replica_sum(value, group_assignment=[list(range(replicas))])
