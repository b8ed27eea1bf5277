"""Networks that users write, for tests: builders of Keras models over activations."""

from __future__ import annotations

from typing import Any

import keras

WIDTH = 8
NOT_A_FUNCTION = 3


def functional(shapes: Any) -> keras.Model:
    """A functional model: one hidden layer over everything."""
    activations = {name: keras.Input((width,)) for name, width in shapes.widths.items()}
    dense = keras.Input((shapes.dense_width,))
    hidden = keras.layers.Concatenate()([*activations.values(), dense])
    hidden = keras.layers.Dense(WIDTH, activation="relu")(hidden)
    bias = keras.initializers.Constant(shapes.initial_logits)
    return keras.Model((activations, dense), keras.layers.Dense(shapes.outputs, bias_initializer=bias)(hidden))


def summed(shapes: Any) -> keras.Model:
    """The sum of all activations, beside a layer whose gradients are zeros."""
    activations = {name: keras.Input((width,)) for name, width in shapes.widths.items()}
    dense = keras.Input((shapes.dense_width,))
    hidden = keras.layers.Concatenate()(list(activations.values()))
    nothing = keras.layers.Dense(shapes.outputs, kernel_initializer="zeros", use_bias=False)(0.0 * hidden)
    return keras.Model((activations, dense), keras.ops.sum(hidden, axis=1, keepdims=True) + nothing)


class Busy(keras.Model):
    """A model with everything that has a state of its own: dropout, moving means and a penalty."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.normal = keras.layers.BatchNormalization(momentum=0.5)
        self.drop = keras.layers.Dropout(0.3)
        self.last = keras.layers.Dense(outputs, kernel_regularizer=keras.regularizers.L2(0.01))

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Logits."""
        activations, dense = inputs
        hidden = keras.ops.concatenate([*activations.values(), dense], axis=1)
        return self.last(self.drop(self.normal(hidden, training=training), training=training))


def busy(shapes: Any) -> Busy:
    """A :class:`Busy` model."""
    return Busy(shapes.outputs)


def too_wide(shapes: Any) -> keras.Model:
    """A model with one output too many."""
    activations = {name: keras.Input((width,)) for name, width in shapes.widths.items()}
    dense = keras.Input((shapes.dense_width,))
    last = keras.layers.Dense(shapes.outputs + 1)
    return keras.Model((activations, dense), last(keras.layers.Concatenate()([*activations.values(), dense])))


def no_model(shapes: Any) -> str:
    """Not a model."""
    return "model"


def other_inputs(shapes: Any) -> keras.Model:
    """A model of one dense vector alone."""
    return keras.Sequential([keras.Input((99,)), keras.layers.Dense(1)])
