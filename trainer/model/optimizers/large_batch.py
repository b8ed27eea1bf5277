"""The optimizers for large batches as optimizers of Keras: LAMB and LARS."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from trainer.model.optimizers.dense_updates import updated


class Lamb(keras.optimizers.Adam):  # type: ignore[misc]
    """The update "lamb" of :mod:`trainer.model.optimizers.dense_updates`, with the variables of Keras's Adam."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update a variable, which TensorFlow's backend gives as its own, and its slots."""
        place = self._get_variable_index(variable)
        slots = [self._momentums[place], self._velocities[place]]
        step = tf.cast(self.iterations.value, tf.float32)
        weight, *after = updated("lamb", learning_rate, variable, gradient, [one.value for one in slots], step)
        for slot, value in zip(slots, after, strict=True):
            slot.assign(value)
        variable.assign(weight)


class Lars(keras.optimizers.Adagrad):  # type: ignore[misc]
    """The update "lars" of :mod:`trainer.model.optimizers.dense_updates`; the accumulators of Keras's Adagrad are its momentum."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update a variable, which TensorFlow's backend gives as its own, and its slot."""
        slot = self._accumulators[self._get_variable_index(variable)]
        step = tf.cast(self.iterations.value, tf.float32)
        weight, momentum = updated("lars", learning_rate, variable, gradient, [slot.value], step)
        slot.assign(momentum)
        variable.assign(weight)
