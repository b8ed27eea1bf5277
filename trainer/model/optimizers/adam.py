"""Keras's Adam whose update of a variable is one of TensorFlow's operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import keras
import tensorflow as tf

#: Keras's settings: the decays of the mean of gradients and of that of their squares, and what is added to the root.
_DECAYS = (0.9, 0.999)
_EPSILON = 1e-7


@dataclass(frozen=True, slots=True)
class AdamStep:
    """What the updates of all variables in one step have in common, as tensors or numbers of float32.

    Attributes:
        powers: of both decays, by the number of this step, counted from 1 on.
        rate: of learning.
        decays: of the mean of gradients and of that of their squares.
        epsilon: is added to the root.
    """

    powers: tuple[Any, Any]
    rate: Any
    decays: tuple[float, float] = _DECAYS
    epsilon: float = _EPSILON

    @classmethod
    def after(cls, updates: Any, rate: Any) -> Self:
        """The step after so many ``updates``, an integer tensor, by the settings of Keras's Adam."""
        step = tf.cast(updates + 1, tf.float32)
        return cls((tf.pow(_DECAYS[0], step), tf.pow(_DECAYS[1], step)), rate)

    def update(self, variable: Any, mean: Any, squares: Any, gradient: Any) -> None:
        """Update a variable of TensorFlow and its slots."""
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=mean.handle,
            v=squares.handle,
            beta1_power=self.powers[0],
            beta2_power=self.powers[1],
            lr=self.rate,
            beta1=self.decays[0],
            beta2=self.decays[1],
            epsilon=self.epsilon,
            grad=gradient,
        )


class FusedAdam(keras.optimizers.Adam):  # type: ignore[misc]
    """Adam with the formula, the settings and the variables of Keras's, which takes about fifteen operations for each variable.

    For dense gradients, without ``amsgrad``.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update a variable, which TensorFlow's backend gives as its own, and its slots."""
        place = self._get_variable_index(variable)
        step = tf.cast(self.iterations.value + 1, tf.float32)
        powers = tf.pow(self.beta_1, step), tf.pow(self.beta_2, step)
        made = AdamStep(powers, learning_rate, (self.beta_1, self.beta_2), self.epsilon)
        made.update(variable, self._momentums[place].value, self._velocities[place].value, gradient)
