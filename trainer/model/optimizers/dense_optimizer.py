"""The optimizer of the dense weights, whose state is in variables as Keras makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from trainer.model.optimizers.adam import FusedAdam
from trainer.model.optimizers.large_batch import Lamb, Lars
from trainer.model.optimizers.newton import DiagonalNewton
from trainer.model.optimizers.optimizer_slots import NEWTON_PRIOR, step_rate
from trainer.options.config import TrainConfig
from transforms.arrays import Array

#: Keras's lists of the variables of each optimizer, one variable for each weight.
_SLOT_LISTS = {
    "sgd": (),
    "adagrad": ("_accumulators",),
    "adam": ("_momentums", "_velocities"),
    "lamb": ("_momentums", "_velocities"),
    "lars": ("_accumulators",),
    "newton": ("_accumulators",),
}


class DenseOptimizer:
    """The optimizer of the options for some weights, all of whose slots are in this process.

    Attributes:
        variables: all state, in the order that checkpoints number.
        updates: the variable of the number of updates.
        rate: that of the learning rate.
        slots: by weight, the variables that the optimizer keeps for it.
    """

    def __init__(self, config: TrainConfig, weights: Sequence[Any]) -> None:
        self._keras = _optimizer(config)
        self._keras.build(weights)
        self.variables: list[Any] = list(self._keras.variables)
        self.updates, self.rate = self._keras.iterations, self._keras.learning_rate
        lists = [getattr(self._keras, name) for name in _SLOT_LISTS[config.dense_optimizer]]
        self.slots: list[list[Any]] = [[of_weights[k] for of_weights in lists] for k in range(len(weights))]

    def apply(self, gradients: Sequence[Any], weights: Sequence[Any]) -> None:
        """One update of weights, inside a graph."""
        self._keras.apply(gradients, weights)

    def kinds(self) -> list[tuple[tuple[int, ...], str]]:
        """The shapes and types of :meth:`arrays`."""
        return [(tuple(one.shape), str(one.dtype)) for one in self.variables]

    def arrays(self) -> list[Array]:
        """A copy of all state."""
        return [np.array(one.value.numpy()) for one in self.variables]

    def load(self, arrays: Sequence[Array]) -> None:
        """Restore :meth:`arrays`; the weights have been restored."""
        for variable, array in zip(self.variables, arrays, strict=True):
            variable.assign(array)


def _optimizer(config: TrainConfig) -> Any:
    kind = config.dense_optimizer
    rate = step_rate(kind, config.dense_learning_rate, config.batch_rows)
    if kind == "newton":
        return DiagonalNewton(learning_rate=rate, initial_accumulator_value=NEWTON_PRIOR / config.batch_rows**2)
    if kind == "lars":
        return Lars(learning_rate=rate, initial_accumulator_value=0.0)
    kinds = {"adagrad": keras.optimizers.Adagrad, "adam": FusedAdam, "lamb": Lamb, "sgd": keras.optimizers.SGD}
    return kinds[kind](learning_rate=rate)
