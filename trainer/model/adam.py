"""Keras's Adam whose update of a variable is one of TensorFlow's operations."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class FusedAdam(keras.optimizers.Adam):  # type: ignore[misc]
    """Adam with the formula, the settings and the variables of Keras's, which takes about fifteen operations for each variable.

    For dense gradients, without ``amsgrad``.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update a variable, which TensorFlow's backend gives as its own, and its slots."""
        place = self._get_variable_index(variable)
        step = tf.cast(self.iterations.value + 1, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[place].value.handle,
            v=self._velocities[place].value.handle,
            beta1_power=tf.pow(self.beta_1, step),
            beta2_power=tf.pow(self.beta_2, step),
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )
