"""The updates of the dense optimizers as functions of arrays: Keras keeps their state in variables, which a lowered step cannot have.

Adagrad and Adam are those of Keras with its defaults; a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_ADAM_DECAYS = (0.9, 0.999)
_EPSILON = 1e-7

#: Arrays like a weight that each optimizer keeps for it, by their first value.
SLOTS: dict[str, tuple[float, ...]] = {"sgd": (), "adagrad": (0.1,), "adam": (0.0, 0.0)}


def updated(kind: str, rate: float, weight: Any, gradient: Any, slots: Sequence[Any], step: Any) -> list[Any]:
    """The weight and its slots after an update; ``step``: updates before it, float32."""
    if kind == "sgd":
        return [weight - rate * gradient]
    if kind == "adagrad":
        total = slots[0] + tf.square(gradient)
        return [weight - rate * gradient / tf.sqrt(total + _EPSILON), total]
    one, two = _ADAM_DECAYS
    mean = slots[0] + (gradient - slots[0]) * (1 - one)
    squares = slots[1] + (tf.square(gradient) - slots[1]) * (1 - two)
    corrected = rate * tf.sqrt(1 - tf.pow(two, step + 1)) / (1 - tf.pow(one, step + 1))
    return [weight - corrected * mean / (tf.sqrt(squares) + _EPSILON), mean, squares]
