"""A diagonal Newton step as an optimizer of Keras."""

from __future__ import annotations

from typing import Any

import keras

from trainer.model.optimizers.dense_updates import updated


class DiagonalNewton(keras.optimizers.Adagrad):  # type: ignore[misc]
    """The update "newton" of :mod:`trainer.model.optimizers.dense_updates`, with the variables of Keras's Adagrad."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update a variable, which TensorFlow's backend gives as its own, and its slot."""
        slot = self._accumulators[self._get_variable_index(variable)]
        weight, total = updated("newton", learning_rate, variable, gradient, [slot.value], self.iterations)
        slot.assign(total)
        variable.assign(weight)
