"""The formulas of the embedding optimizers, in the precision of their arguments."""

from __future__ import annotations

import numpy as np

from trainer.tables import FTRL, SGD, Adagrad, AdagradMomentum, Adam, RowWiseAdagrad


def reference(optimizer, w, slots, g, rate):
    """One update of rows, [..., dim] with slots [..., slots * dim]: the formulas of ``trainer.tables.optimizers``, as written there."""
    g = np.clip(g, *(-np.inf if optimizer.clip_gradient_min is None else optimizer.clip_gradient_min,
                     np.inf if optimizer.clip_gradient_max is None else optimizer.clip_gradient_max))  # fmt: skip
    decay = optimizer.weight_decay_factor or 0.0
    w = w - decay * (rate if optimizer.multiply_weight_decay_factor_by_learning_rate else 1.0) * w
    match optimizer:
        case SGD():
            w = w - rate * g
        case Adagrad():
            slots = slots + g**2
            w = w - rate * g / np.sqrt(slots)
        case RowWiseAdagrad():
            slots = slots + np.mean(g**2, axis=-1, keepdims=True)
            w = w - rate / (np.sqrt(slots) + optimizer.epsilon) * g
        case AdagradMomentum(momentum=momentum, beta2=beta2):
            a, m = np.split(slots, 2, axis=-1)
            a = a + g**2 if beta2 == 1 else beta2 * a + (1 - beta2) * g**2
            scaled = (a + optimizer.epsilon) ** (-1 / optimizer.exponent) * g
            m = momentum * m + scaled
            w = w - rate * (momentum * m + scaled if optimizer.use_nesterov else m)
            slots = np.concatenate([a, m], axis=-1)
        case Adam(beta_1=beta_1, beta_2=beta_2, epsilon=epsilon):
            m, v = np.split(slots, 2, axis=-1)
            m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g**2
            w = w - rate * m / (np.sqrt(v + epsilon**2) if optimizer.sum_inside_sqrt else np.sqrt(v) + epsilon)
            slots = np.concatenate([m, v], axis=-1)
        case FTRL():
            a, linear = np.split(slots, 2, axis=-1)
            p, l1 = -optimizer.learning_rate_power, optimizer.l1_regularization_strength
            by_rate = rate if optimizer.multiply_linear_by_learning_rate else 1.0
            linear = linear / by_rate + g - ((a + g**2) ** p - a**p) / rate * w
            a = a + g**2
            ridge = (a**p + optimizer.beta) / rate + 2 * optimizer.l2_regularization_strength
            w = (np.clip(linear, -l1, l1) - linear) / ridge
            slots = np.concatenate([a, linear * by_rate], axis=-1)
    least, most = optimizer.clip_weight_min, optimizer.clip_weight_max
    return np.clip(w, -np.inf if least is None else least, np.inf if most is None else most), slots
