"""The dense part of a training step as a function of its state: forward, backward, and the update of the dense weights.

It is the step of one replica; sums over replicas are part of it. ``headrace tpu check`` compiles it, and the tpu engine trains it. Keras's
optimizers keep their state in variables: a lowered step cannot have them, and under a planned ``TPUStrategy`` Keras does not find them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from trainer.model.dense_model import DenseModel
from trainer.model.inputs import InputLayout
from trainer.model.optimizers.dense_updates import updated
from trainer.model.optimizers.optimizer_slots import SLOTS, step_rate
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig

#: The state of the dense part: arrays, variables' values or types, all in one structure.
DenseState = dict[str, Any]


@dataclass(frozen=True)
class DenseGradients:
    """What a step of one replica finds before any weight changes.

    Attributes:
        logits: see :class:`DenseResult`.
        by_activations: the loss's gradients by the activations.
        by_weights: by each dense weight, summed over the replicas, or as ``sum_of`` returns it.
        changing: random state and moving statistics after the step.
    """

    logits: Any
    by_activations: Any
    by_weights: list[Any]
    changing: list[Any]


@dataclass(frozen=True)
class DenseResult:
    """A step of one replica.

    Attributes:
        logits: before the step, without dropout, [events] or [events, outputs].
        gradients: of the activations.
        state: after the step.
        units_on: see :meth:`~trainer.model.dense_model.DenseModel.units_on`.
    """

    logits: Any
    gradients: Any
    state: DenseState
    units_on: Any


@dataclass(frozen=True)
class DensePart:
    """The dense layers of a model and its dense optimizer, as functions of their state.

    Attributes:
        model: in its initial state.
        config: names the optimizer.
        head: the task, or the tasks.
        deep_columns: the first columns of the engine's activations, which are the deep part's; the others are the linear part's.
    """

    model: DenseModel
    config: TrainConfig
    head: AnyHead
    deep_columns: int

    @classmethod
    def build(cls, layout: InputLayout, config: TrainConfig, head: AnyHead, *, rows: int = 0) -> DensePart:
        """The dense part of a model; ``rows``: see :class:`~trainer.model.dense_model.DenseModel`."""
        deep = sum(feature.width for feature in layout.features) if config.deep else 0
        return cls(DenseModel(layout, config, head, rows=rows), config, head, deep)

    def state_specs(self) -> DenseState:
        """The types of the state: weights, slots of each, random state and moving statistics, and the number of updates."""
        weights = [tf.TensorSpec(one.shape, one.dtype) for one in self.model.trainable]
        return {
            "weights": weights,
            "slots": [[spec] * len(SLOTS[self.config.dense_optimizer]) for spec in weights],
            "changing": [tf.TensorSpec(one.shape, one.dtype) for one in self.model.changing],
            "updates": tf.TensorSpec([], tf.float32),
        }

    def read_state(self) -> DenseState:
        """The state of the model's variables, as arrays."""
        model = self.model
        return {
            "weights": [one.numpy() for one in model.trainable],
            "slots": [[slot.numpy() for slot in slots] for slots in model.optimizer_slots],
            "changing": [one.numpy() for one in model.changing],
            "updates": model.optimizer_updates.numpy().astype("float32"),
        }

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Set the model's variables to a state, the inverse of :meth:`read_state`."""
        model = self.model
        model.optimizer_updates.assign(int(state["updates"]))
        variables = [*model.trainable, *model.changing, *(slot for slots in model.optimizer_slots for slot in slots)]
        arrays = [*state["weights"], *state["changing"], *(slot for slots in state["slots"] for slot in slots)]
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)

    def step(
        self,
        state: Mapping[str, Any],
        activations: Any,
        dense: Any,
        labels: Any,
        weights: Any,
        *,
        replicas: int,
        total_of: Callable[[Any], Any],
    ) -> DenseResult:
        """A step by the mean loss over the events of all ``replicas``; ``total_of``: the sum of a tensor over them."""
        found = self.differentiate(state, activations, dense, labels, weights, replicas=replicas, total_of=total_of)
        after = self.update({**state, "changing": found.changing}, found.by_weights)
        return DenseResult(found.logits, found.by_activations, after, self.model.units_on(found.by_weights))

    def differentiate(
        self,
        state: Mapping[str, Any],
        activations: Any,
        dense: Any,
        labels: Any,
        weights: Any,
        *,
        replicas: int,
        total_of: Callable[[Any], Any],
        sum_of: Callable[[Any], Any] | None = None,
    ) -> DenseGradients:
        """The gradients of :meth:`step`, without its update; ``sum_of``: applied to each gradient by weights in place of ``total_of``."""
        variables = [*self.model.trainable, *self.model.changing]
        mapping = list(zip(variables, [*state["weights"], *state["changing"]], strict=True))
        columns = [self.deep_columns, activations.shape[1] - self.deep_columns]
        with keras.StatelessScope(state_mapping=mapping) as scope, tf.GradientTape() as tape:
            tape.watch([activations, *state["weights"]])
            deep, linear = tf.split(activations, columns, axis=1)
            logits = self.model.logits(deep, linear, dense, training=True)
            total = total_of(tf.reduce_sum(weights))
            loss = self.model.loss(logits, labels, weights, total, replicas)
        sources = [activations, *state["weights"]]
        by_activations, *by_weights = tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        if self.model.changing:
            with keras.StatelessScope(state_mapping=mapping):
                logits = self.model.logits(deep, linear, dense)
        changing = [scope.get_current_value(variable) for variable in self.model.changing]
        summed = [(sum_of or total_of)(gradient) for gradient in by_weights]
        return DenseGradients(logits, by_activations, summed, changing)

    def predict(self, state: Mapping[str, Any], activations: Any, dense: Any) -> Any:
        """The logits of :meth:`step` before any weight changes, without a gradient."""
        variables = [*self.model.trainable, *self.model.changing]
        mapping = list(zip(variables, [*state["weights"], *state["changing"]], strict=True))
        deep, linear = tf.split(activations, [self.deep_columns, activations.shape[1] - self.deep_columns], axis=1)
        with keras.StatelessScope(state_mapping=mapping):
            return self.model.logits(deep, linear, dense)

    def update(self, state: Mapping[str, Any], gradients: Sequence[Any]) -> DenseState:
        """The state after one update by the gradients of all dense weights."""
        kind = self.config.dense_optimizer
        rate = step_rate(kind, self.config.dense_learning_rate, self.config.batch_rows)
        made = [
            updated(kind, rate, weight, gradient, slots, state["updates"])
            for weight, gradient, slots in zip(state["weights"], gradients, state["slots"], strict=True)
        ]
        return {
            "weights": [one[0] for one in made],
            "slots": [one[1:] for one in made],
            "changing": state["changing"],
            "updates": state["updates"] + 1.0,
        }
