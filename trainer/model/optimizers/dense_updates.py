"""The updates of the dense optimizers as functions of arrays: Keras keeps their state in variables, which a lowered step cannot have.

Adagrad and Adam are those of Keras with its defaults; a test compares them. *newton* is a diagonal Newton step (as in Hazan, Agarwal,
Kale, "Logarithmic regret algorithms for online convex optimization", 2007): the gradient by the sum of its squares, which estimates the
curvature of a log loss. A step shrinks as one by the number of events, so that a weight is a mean over all of them.

*lamb* (You et al., arXiv:1904.00962) and *lars* (You et al., arXiv:1708.03888) are for large batches: the step of each weight matrix is
scaled by a *trust ratio*, its norm by that of its update, so that no layer moves by more than a share of itself. A matrix of zeros, or
without a gradient, has a ratio of 1. Lamb is that of Keras. Lars has a momentum of 0.9; its rate is the paper's times the coefficient of
0.001, so that the rate of both is the share of its norm by which a matrix moves. Biases have the ratio 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_ADAM_DECAYS = (np.float32(0.9), np.float32(0.999))
#: As TensorFlow's operation of Adam rounds: 1 - 0.9 in float32.
_ONE = np.float32(1)
_EPSILON = 1e-7
_LARS_MOMENTUM = np.float32(0.9)


def updated(
    kind: str,
    rate: float,
    weight: Any,
    gradient: Any,
    slots: Sequence[Any],
    step: Any,
    *,
    trust_of: Callable[[Any, Any], Any] | None = None,
) -> list[Any]:
    """The weight and its slots after an update.

    Args:
        kind: the optimizer.
        rate: a :func:`~trainer.model.optimizers.optimizer_slots.step_rate`.
        weight: one array, or a segment of all weights.
        gradient: of its shape.
        slots: of its shape.
        step: updates before it, float32.
        trust_of: the trust ratios of a weight and its change, of each float or of all; None for one array.
    """
    if kind == "sgd":
        return [weight - rate * gradient]
    if kind == "newton":
        total = slots[0] + tf.square(gradient)
        return [weight - rate * gradient / total, total]
    if kind == "adagrad":
        total = slots[0] + tf.square(gradient)
        return [weight - rate * gradient / tf.sqrt(total + _EPSILON), total]
    if kind == "lars":
        ratio_of = trust_of or (trust_ratio if len(weight.shape) > 1 else _no_ratio)
        ratio = ratio_of(weight, gradient)
        momentum = _LARS_MOMENTUM * slots[0] + rate * ratio * gradient
        return [weight - momentum, momentum]
    one, two = _ADAM_DECAYS
    mean = slots[0] + (gradient - slots[0]) * (_ONE - one)
    squares = slots[1] + (tf.square(gradient) - slots[1]) * (_ONE - two)
    if kind == "lamb":
        without_bias = mean / (1 - tf.pow(one, step + 1))
        change = without_bias / (tf.sqrt(squares / (1 - tf.pow(two, step + 1))) + _EPSILON)
        return [weight - rate * (trust_of or trust_ratio)(weight, change) * change, mean, squares]
    corrected = rate * tf.sqrt(1 - tf.pow(two, step + 1)) / (1 - tf.pow(one, step + 1))
    return [weight - mean * corrected / (tf.sqrt(squares) + _EPSILON), mean, squares]


def _no_ratio(weight: Any, change: Any) -> Any:
    return _ONE


def trust_ratio(weight: Any, change: Any) -> Any:
    """The norm of a weight by that of its change; 1 if either is 0."""
    norm, of_change = tf.norm(weight), tf.norm(change)
    is_known = tf.logical_and(norm > 0, of_change > 0)
    return tf.where(is_known, norm / tf.where(is_known, of_change, _ONE), _ONE)
