"""The optimizers of embedding tables as functions of TensorFlow's tensors, for tables that each device of a slice has whole.

The formulas are those of :mod:`trainer.tables.optimizers`, in float32. Settings that SparseCore's programs lack have none here either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.errors import UnsupportedSetting
from trainer.tables.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, Optimizer


def updated_rows(optimizer: Optimizer, rate: Any, rows: Any, slots: Sequence[Any], gradients: Any) -> list[Any]:
    """The rows and their slots after one update; all are float32 [rows, dim].

    Args:
        rate: the learning rate of this step, in place of the optimizer's.
        slots: in the order of ``optimizer.own_slots``.
        gradients: of each row, summed over the batch.

    Raises :class:`UnsupportedSetting` for an optimizer that no TPU has.
    """
    import tensorflow as tf

    if isinstance(optimizer, SGD):
        return [rows - rate * gradients]
    if isinstance(optimizer, Adagrad):
        total = slots[0] + tf.square(gradients)
        return [rows - rate * gradients / tf.sqrt(total), total]
    if isinstance(optimizer, AdagradMomentum):
        return _adagrad_momentum(optimizer, rate, rows, slots, gradients)
    if isinstance(optimizer, Adam):
        mean = optimizer.beta_1 * slots[0] + (1 - optimizer.beta_1) * gradients
        squares = optimizer.beta_2 * slots[1] + (1 - optimizer.beta_2) * tf.square(gradients)
        inside = optimizer.sum_inside_sqrt
        root = tf.sqrt(squares + optimizer.epsilon**2) if inside else tf.sqrt(squares) + optimizer.epsilon
        return [rows - rate * mean / root, mean, squares]
    if isinstance(optimizer, FTRL):
        return _ftrl(optimizer, rate, rows, slots, gradients)
    raise UnsupportedSetting("an optimizer must be one of TPUs", value=type(optimizer).__name__,
                             allowed="SGD, Adagrad, AdagradMomentum, Adam or FTRL")  # fmt: skip


def _adagrad_momentum(
    optimizer: AdagradMomentum, rate: Any, rows: Any, slots: Sequence[Any], gradients: Any
) -> list[Any]:
    import tensorflow as tf

    square, momentum = tf.square(gradients), optimizer.momentum
    total = slots[0] + square if optimizer.beta2 == 1 else optimizer.beta2 * slots[0] + (1 - optimizer.beta2) * square
    scaled = tf.pow(total + optimizer.epsilon, -1 / optimizer.exponent) * gradients
    momenta = momentum * slots[1] + scaled
    change = momentum * momenta + scaled if optimizer.use_nesterov else momenta
    return [rows - rate * change, total, momenta]


def _ftrl(optimizer: FTRL, rate: Any, rows: Any, slots: Sequence[Any], gradients: Any) -> list[Any]:
    import tensorflow as tf

    power, l1 = -optimizer.learning_rate_power, optimizer.l1_regularization_strength
    scale = rate if optimizer.multiply_linear_by_learning_rate else 1.0
    total = slots[0] + tf.square(gradients)
    sigma = (tf.pow(total, power) - tf.pow(slots[0], power)) / rate
    linear = slots[1] / scale + gradients - sigma * rows
    divisor = (tf.pow(total, power) + optimizer.beta) / rate + 2 * optimizer.l2_regularization_strength
    return [(tf.clip_by_value(linear, -l1, l1) - linear) / divisor, total, linear * scale]
