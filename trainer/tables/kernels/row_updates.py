"""The optimizers' updates of one row, for kernels. The formulas are those of :mod:`trainer.tables.optimizers`.

``sums[g : g + dim]`` is the row's summed gradient of one step; ``weights[w : w + dim]`` and the row's slots from ``slots[s]`` on are
updated in place, a vector of columns at a time. All arithmetic is float32, in the order of the programs that TensorFlow lowers for
SparseCore.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.tables.kernels.vectors import (
    LANES,
    clip,
    load,
    load_as,
    power,
    root,
    splat,
    splat1,
    splat4,
    splat8,
    splat_as,
    store,
    total,
)
from trainer.tables.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, Optimizer, RowWiseAdagrad
from transforms.arrays import Array
from transforms.kernels.compiled import inlined

SGD_CODE, ADAGRAD, ROW_WISE_ADAGRAD, ADAGRAD_MOMENTUM, ADAM, FTRL_CODE = range(6)

# Columns of the parameters of a table.
_GRADIENT_MIN, _GRADIENT_MAX, _WEIGHT_MIN, _WEIGHT_MAX, _DECAY, _DECAY_BY_RATE, _ADMIT_AFTER, _OWN = range(8)
_OWN_COUNT = 5
_INFINITY = np.float32(np.inf)
_ZERO, _ONE, _TWO, _HALF = np.float32(0.0), np.float32(1.0), np.float32(2.0), np.float32(0.5)


def optimizer_parameters(optimizer: Optimizer) -> tuple[int, Array]:
    """The code of an optimizer, and its settings without the learning rate as float32 [12]."""
    limits = (
        optimizer.clip_gradient_min,
        optimizer.clip_gradient_max,
        optimizer.clip_weight_min,
        optimizer.clip_weight_max,
    )
    common = [
        bound if limit is None else limit
        for limit, bound in zip(limits, (-np.inf, np.inf, -np.inf, np.inf), strict=True)
    ]
    decay = optimizer.weight_decay_factor or 0.0
    code, own = _own_parameters(optimizer)
    own += [0.0] * (_OWN_COUNT - len(own))
    by_rate = float(optimizer.multiply_weight_decay_factor_by_learning_rate)
    return code, np.array([*common, decay, by_rate, optimizer.admit_after, *own], np.float32)


def _own_parameters(optimizer: Optimizer) -> tuple[int, list[float]]:
    match optimizer:
        case SGD():
            return SGD_CODE, []
        case Adagrad():
            return ADAGRAD, []
        case RowWiseAdagrad():
            return ROW_WISE_ADAGRAD, [optimizer.epsilon]
        case AdagradMomentum():
            nesterov, exponent = float(optimizer.use_nesterov), 1 / optimizer.exponent
            return ADAGRAD_MOMENTUM, [optimizer.momentum, nesterov, exponent, optimizer.beta2, optimizer.epsilon]
        case Adam():
            return ADAM, [optimizer.beta_1, optimizer.beta_2, optimizer.epsilon, float(optimizer.sum_inside_sqrt)]
        case FTRL():
            l1, l2 = optimizer.l1_regularization_strength, optimizer.l2_regularization_strength
            by_rate = float(optimizer.multiply_linear_by_learning_rate)
            return FTRL_CODE, [-optimizer.learning_rate_power, l1, l2, optimizer.beta, by_rate]


@inlined
def sum_of_squares(values: Array, at: int, dim: int) -> np.float32:
    """The sum of the squares of ``values[at : at + dim]``, float32."""
    whole = dim - dim % LANES
    squares = splat(_ZERO)
    for d in range(0, whole, LANES):
        part = load(values, at + d)
        squares = squares + part * part
    square: np.float32 = total(squares)
    for d in range(whole, dim):
        square += values[at + d] * values[at + d]
    return square


@inlined
def _row_wise_rate(
    slots: Array, s: int, sums: Array, g: int, dim: int, rate: np.float32, epsilon: np.float32
) -> np.float32:
    """Add the mean square of a row's gradient to its slot; returns the learning rate divided by its root."""
    slots[s] += sum_of_squares(sums, g, dim) / np.float32(dim)
    divided: np.float32 = rate / (root(slots[s]) + epsilon)
    return divided


@inlined
def _update_sgd(like: Any, weights: Array, w: int, gradient: Any, rate: np.float32) -> None:
    store(weights, w, load_as(weights, w, like) - splat_as(rate, like) * gradient)


@inlined
def _update_adagrad(like: Any, weights: Array, w: int, slots: Array, s: int, gradient: Any, rate: np.float32) -> None:
    accumulator = load_as(slots, s, like) + gradient * gradient
    store(slots, s, accumulator)
    store(weights, w, load_as(weights, w, like) - splat_as(rate, like) * gradient / root(accumulator))


@inlined
def _update_adagrad_momentum(
    like: Any, weights: Array, w: int, slots: Array, s: int, dim: int, gradient: Any, rate: np.float32, own: Array, t: int
) -> None:  # fmt: skip
    momentum, is_nesterov, exponent = splat_as(own[t, _OWN + 0], like), own[t, _OWN + 1] != _ZERO, own[t, _OWN + 2]
    beta2, epsilon = own[t, _OWN + 3], splat_as(own[t, _OWN + 4], like)
    accumulator = load_as(slots, s, like)
    if beta2 == _ONE:
        accumulator = accumulator + gradient * gradient
    else:
        accumulator = splat_as(beta2, like) * accumulator + splat_as(_ONE - beta2, like) * gradient * gradient
    store(slots, s, accumulator)
    if exponent == _HALF:
        scaled = splat_as(_ONE, like) / root(accumulator + epsilon) * gradient
    else:
        scaled = power(accumulator + epsilon, splat_as(-exponent, like)) * gradient
    moment = momentum * load_as(slots, s + dim, like) + scaled
    store(slots, s + dim, moment)
    if is_nesterov:
        moment = momentum * moment + scaled
    store(weights, w, load_as(weights, w, like) - splat_as(rate, like) * moment)


@inlined
def _update_adam(
    like: Any, weights: Array, w: int, slots: Array, s: int, dim: int, gradient: Any, rate: np.float32, own: Array, t: int
) -> None:  # fmt: skip
    beta_1, beta_2, epsilon, is_inside = own[t, _OWN + 0], own[t, _OWN + 1], own[t, _OWN + 2], own[t, _OWN + 3] != _ZERO
    inside, outside = (epsilon * epsilon, _ZERO) if is_inside else (_ZERO, epsilon)
    moment = splat_as(beta_1, like) * load_as(slots, s, like) + splat_as(_ONE - beta_1, like) * gradient
    velocity = splat_as(beta_2, like) * load_as(slots, s + dim, like)
    velocity = velocity + splat_as(_ONE - beta_2, like) * gradient * gradient
    store(slots, s, moment)
    store(slots, s + dim, velocity)
    divisor = root(velocity + splat_as(inside, like)) + splat_as(outside, like)
    store(weights, w, load_as(weights, w, like) - splat_as(rate, like) * moment / divisor)


@inlined
def _update_ftrl(
    like: Any, weights: Array, w: int, slots: Array, s: int, dim: int, gradient: Any, rate: np.float32, own: Array, t: int
) -> None:  # fmt: skip
    exponent, l1, l2 = own[t, _OWN + 0], own[t, _OWN + 1], own[t, _OWN + 2]
    beta, is_multiplied = splat_as(own[t, _OWN + 3], like), own[t, _OWN + 4] != _ZERO
    # In the form of products with the rate, gradients and strengths are multiplied and powers are not divided by it.
    factor, divisor = (rate, _ONE) if is_multiplied else (_ONE, rate)
    threshold, ridge, divisors = factor * l1, splat_as(_TWO * factor * l2, like), splat_as(divisor, like)
    before = load_as(slots, s, like)
    after = before + gradient * gradient
    store(slots, s, after)
    if exponent == _HALF:
        raised, base = root(after), root(before)
    else:
        raised, base = power(after, splat_as(exponent, like)), power(before, splat_as(exponent, like))
    linear = load_as(slots, s + dim, like) + splat_as(factor, like) * gradient
    linear = linear - (raised - base) * load_as(weights, w, like) / divisors
    store(slots, s + dim, linear)
    limited = clip(linear, splat_as(-threshold, like), splat_as(threshold, like))
    store(weights, w, (limited - linear) / ((raised + beta) / divisors + ridge))


@inlined
def _update_columns(
    like: Any, code: int, parameters: Array, t: int, rate: np.float32, dim: int, weights: Array, w: int, slots: Array, s: int,
    sums: Array, g: int,
) -> None:  # fmt: skip
    """Update as many columns as ``like`` has. Slots of a column are ``dim`` values apart."""
    gradient = load_as(sums, g, like)
    if code == SGD_CODE:
        _update_sgd(like, weights, w, gradient, rate)
    elif code == ADAGRAD:
        _update_adagrad(like, weights, w, slots, s, gradient, rate)
    elif code == ADAGRAD_MOMENTUM:
        _update_adagrad_momentum(like, weights, w, slots, s, dim, gradient, rate, parameters, t)
    elif code == ADAM:
        _update_adam(like, weights, w, slots, s, dim, gradient, rate, parameters, t)
    else:
        _update_ftrl(like, weights, w, slots, s, dim, gradient, rate, parameters, t)


@inlined
def _limit(values: Array, at: int, dim: int, least: np.float32, most: np.float32) -> None:
    for d in range(at, at + dim):
        values[d] = clip(values[d], least, most)


@inlined
def update_row(
    code: int, parameters: Array, t: int, rate: np.float32, dim: int, weights: Array, w: int, slots: Array, s: int, slot_dim: int,
    sums: Array, g: int,
) -> None:  # fmt: skip
    """Update one row of table ``t`` by the optimizer of this code; ``parameters``: those of all tables, by :func:`optimizer_parameters`.

    A row that is not admitted yet counts the update in the last of its ``slot_dim`` slot values.
    """
    if parameters[t, _ADMIT_AFTER] > _ONE and slots[s + slot_dim - 1] < parameters[t, _ADMIT_AFTER]:
        slots[s + slot_dim - 1] += _ONE
        if slots[s + slot_dim - 1] < parameters[t, _ADMIT_AFTER]:
            return
    if parameters[t, _GRADIENT_MIN] != -_INFINITY or parameters[t, _GRADIENT_MAX] != _INFINITY:
        _limit(sums, g, dim, parameters[t, _GRADIENT_MIN], parameters[t, _GRADIENT_MAX])
    if parameters[t, _DECAY] != _ZERO:
        factor = parameters[t, _DECAY] * (rate if parameters[t, _DECAY_BY_RATE] != _ZERO else _ONE)
        for d in range(w, w + dim):
            weights[d] -= factor * weights[d]
    if code == ROW_WISE_ADAGRAD:
        rate, code = _row_wise_rate(slots, s, sums, g, dim, rate, parameters[t, _OWN]), SGD_CODE
    d = dim - dim % LANES
    for c in range(0, d, LANES):
        _update_columns(splat(_ZERO), code, parameters, t, rate, dim, weights, w + c, slots, s + c, sums, g + c)
    if dim & 8:
        _update_columns(splat8(_ZERO), code, parameters, t, rate, dim, weights, w + d, slots, s + d, sums, g + d)
        d += 8
    if dim & 4:
        _update_columns(splat4(_ZERO), code, parameters, t, rate, dim, weights, w + d, slots, s + d, sums, g + d)
        d += 4
    for c in range(d, dim):
        _update_columns(splat1(_ZERO), code, parameters, t, rate, dim, weights, w + c, slots, s + c, sums, g + c)
    if parameters[t, _WEIGHT_MIN] != -_INFINITY or parameters[t, _WEIGHT_MAX] != _INFINITY:
        _limit(weights, w, dim, parameters[t, _WEIGHT_MIN], parameters[t, _WEIGHT_MAX])
