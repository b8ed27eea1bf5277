"""The optimizers' updates of one row, for kernels. The formulas are those of :mod:`trainer.embedding.optimizers`.

``sums[g : g + dim]`` is the row's summed gradient of one step; ``weights[w : w + dim]`` and the row's slots from ``slots[s]`` on are
updated in place. All arithmetic is float32, in the order of the programs that TensorFlow lowers for SparseCore, and equal for
columns that a vector holds and those that are left over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.embedding.cpu.vectors import LANES, clip, load, power, root, splat, store, total
from trainer.embedding.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, Optimizer, RowWiseAdagrad
from transforms.kernels.compiled import inlined

Array = np.ndarray[Any, np.dtype[Any]]

SGD_CODE, ADAGRAD, ROW_WISE_ADAGRAD, ADAGRAD_MOMENTUM, ADAM, FTRL_CODE = range(6)

# Columns of the parameters of a table.
_GRADIENT_MIN, _GRADIENT_MAX, _WEIGHT_MIN, _WEIGHT_MAX, _DECAY, _DECAY_BY_RATE, _OWN = range(7)
_OWN_COUNT = 5
_INFINITY = np.float32(np.inf)
_ZERO, _ONE, _TWO, _HALF = np.float32(0.0), np.float32(1.0), np.float32(2.0), np.float32(0.5)


def optimizer_parameters(optimizer: Optimizer) -> tuple[int, Array]:
    """The code of an optimizer, and its settings without the learning rate as float32 [11]."""
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
    return code, np.array([*common, decay, by_rate, *own], np.float32)


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
def _update_sgd(weights: Array, w: int, sums: Array, g: int, dim: int, rate: np.float32) -> None:
    whole = dim - dim % LANES
    rates = splat(rate)
    for d in range(0, whole, LANES):
        store(weights, w + d, load(weights, w + d) - rates * load(sums, g + d))
    for d in range(whole, dim):
        weights[w + d] -= rate * sums[g + d]


@inlined
def _update_adagrad(
    weights: Array, w: int, slots: Array, s: int, sums: Array, g: int, dim: int, rate: np.float32
) -> None:
    whole = dim - dim % LANES
    rates = splat(rate)
    for d in range(0, whole, LANES):
        gradient = load(sums, g + d)
        accumulator = load(slots, s + d) + gradient * gradient
        store(slots, s + d, accumulator)
        store(weights, w + d, load(weights, w + d) - rates * gradient / root(accumulator))
    for d in range(whole, dim):
        slots[s + d] += sums[g + d] * sums[g + d]
        weights[w + d] -= rate * sums[g + d] / root(slots[s + d])


@inlined
def _update_row_wise_adagrad(
    weights: Array, w: int, slots: Array, s: int, sums: Array, g: int, dim: int, rate: np.float32, epsilon: np.float32
) -> None:
    whole = dim - dim % LANES
    squares = splat(_ZERO)
    for d in range(0, whole, LANES):
        gradient = load(sums, g + d)
        squares = squares + gradient * gradient
    square = total(squares)
    for d in range(whole, dim):
        square += sums[g + d] * sums[g + d]
    slots[s] += square / np.float32(dim)
    _update_sgd(weights, w, sums, g, dim, rate / (root(slots[s]) + epsilon))


@inlined
def _update_adagrad_momentum(
    weights: Array, w: int, slots: Array, s: int, sums: Array, g: int, dim: int, rate: np.float32, own: Array, t: int
) -> None:
    momentum, is_nesterov, exponent, beta2, epsilon = (
        own[t, _OWN + 0],
        own[t, _OWN + 1] != _ZERO,
        own[t, _OWN + 2],
        own[t, _OWN + 3],
        own[t, _OWN + 4],
    )
    adds, complement, is_root = beta2 == _ONE, _ONE - beta2, exponent == _HALF
    whole = dim - dim % LANES
    momenta, rates, epsilons = splat(momentum), splat(rate), splat(epsilon)
    exponents, betas, complements, ones = splat(-exponent), splat(beta2), splat(complement), splat(_ONE)
    for d in range(0, whole, LANES):
        gradient, accumulator = load(sums, g + d), load(slots, s + d)
        if adds:
            accumulator = accumulator + gradient * gradient
        else:
            accumulator = betas * accumulator + complements * gradient * gradient
        store(slots, s + d, accumulator)
        scale = ones / root(accumulator + epsilons) if is_root else power(accumulator + epsilons, exponents)
        scaled = scale * gradient
        moment = momenta * load(slots, s + dim + d) + scaled
        store(slots, s + dim + d, moment)
        if is_nesterov:
            moment = momenta * moment + scaled
        store(weights, w + d, load(weights, w + d) - rates * moment)
    for d in range(whole, dim):
        one, held = sums[g + d], slots[s + d]
        held = held + one * one if adds else beta2 * held + complement * one * one
        slots[s + d] = held
        factor = _ONE / root(held + epsilon) if is_root else power(held + epsilon, -exponent)
        step = factor * one
        change = momentum * slots[s + dim + d] + step
        slots[s + dim + d] = change
        if is_nesterov:
            change = momentum * change + step
        weights[w + d] -= rate * change


@inlined
def _update_adam(
    weights: Array, w: int, slots: Array, s: int, sums: Array, g: int, dim: int, rate: np.float32, own: Array, t: int
) -> None:
    beta_1, beta_2, epsilon, is_inside = own[t, _OWN + 0], own[t, _OWN + 1], own[t, _OWN + 2], own[t, _OWN + 3] != _ZERO
    inside, outside = (epsilon * epsilon, _ZERO) if is_inside else (_ZERO, epsilon)
    whole = dim - dim % LANES
    ones, twos, rates = splat(beta_1), splat(beta_2), splat(rate)
    rest_1, rest_2 = splat(_ONE - beta_1), splat(_ONE - beta_2)
    insides, outsides = splat(inside), splat(outside)
    for d in range(0, whole, LANES):
        gradient = load(sums, g + d)
        moment = ones * load(slots, s + d) + rest_1 * gradient
        velocity = twos * load(slots, s + dim + d) + rest_2 * gradient * gradient
        store(slots, s + d, moment)
        store(slots, s + dim + d, velocity)
        store(weights, w + d, load(weights, w + d) - rates * moment / (root(velocity + insides) + outsides))
    for d in range(whole, dim):
        one = sums[g + d]
        slots[s + d] = beta_1 * slots[s + d] + (_ONE - beta_1) * one
        slots[s + dim + d] = beta_2 * slots[s + dim + d] + (_ONE - beta_2) * one * one
        weights[w + d] -= rate * slots[s + d] / (root(slots[s + dim + d] + inside) + outside)


@inlined
def _update_ftrl(
    weights: Array, w: int, slots: Array, s: int, sums: Array, g: int, dim: int, rate: np.float32, own: Array, t: int
) -> None:
    exponent, l1, l2, beta, is_multiplied = (
        own[t, _OWN + 0],
        own[t, _OWN + 1],
        own[t, _OWN + 2],
        own[t, _OWN + 3],
        own[t, _OWN + 4] != _ZERO,
    )
    # In the form of products with the rate, gradients and strengths are multiplied and powers are not divided by it.
    factor, divisor = (rate, _ONE) if is_multiplied else (_ONE, rate)
    threshold, ridge, is_root = factor * l1, _TWO * factor * l2, exponent == _HALF
    whole = dim - dim % LANES
    factors, divisors, exponents, betas = splat(factor), splat(divisor), splat(exponent), splat(beta)
    least, most, ridges = splat(-threshold), splat(threshold), splat(ridge)
    for d in range(0, whole, LANES):
        gradient, before = load(sums, g + d), load(slots, s + d)
        after = before + gradient * gradient
        store(slots, s + d, after)
        raised = root(after) if is_root else power(after, exponents)
        base = root(before) if is_root else power(before, exponents)
        linear = load(slots, s + dim + d) + factors * gradient - (raised - base) * load(weights, w + d) / divisors
        store(slots, s + dim + d, linear)
        store(weights, w + d, (clip(linear, least, most) - linear) / ((raised + betas) / divisors + ridges))
    for d in range(whole, dim):
        one, old = sums[g + d], slots[s + d]
        new = old + one * one
        slots[s + d] = new
        high = root(new) if is_root else power(new, exponent)
        low = root(old) if is_root else power(old, exponent)
        term = slots[s + dim + d] + factor * one - (high - low) * weights[w + d] / divisor
        slots[s + dim + d] = term
        weights[w + d] = (clip(term, -threshold, threshold) - term) / ((high + beta) / divisor + ridge)


@inlined
def _limit(values: Array, at: int, dim: int, least: np.float32, most: np.float32) -> None:
    for d in range(at, at + dim):
        values[d] = clip(values[d], least, most)


@inlined
def update_row(
    code: int, parameters: Array, t: int, rate: np.float32, dim: int, weights: Array, w: int, slots: Array, s: int, sums: Array, g: int
) -> None:  # fmt: skip
    """Update one row of table ``t`` by the optimizer of this code; ``parameters``: those of all tables, by :func:`optimizer_parameters`."""
    if parameters[t, _GRADIENT_MIN] != -_INFINITY or parameters[t, _GRADIENT_MAX] != _INFINITY:
        _limit(sums, g, dim, parameters[t, _GRADIENT_MIN], parameters[t, _GRADIENT_MAX])
    if parameters[t, _DECAY] != _ZERO:
        factor = parameters[t, _DECAY] * (rate if parameters[t, _DECAY_BY_RATE] != _ZERO else _ONE)
        for d in range(w, w + dim):
            weights[d] -= factor * weights[d]
    if code == SGD_CODE:
        _update_sgd(weights, w, sums, g, dim, rate)
    elif code == ADAGRAD:
        _update_adagrad(weights, w, slots, s, sums, g, dim, rate)
    elif code == ROW_WISE_ADAGRAD:
        _update_row_wise_adagrad(weights, w, slots, s, sums, g, dim, rate, parameters[t, _OWN])
    elif code == ADAGRAD_MOMENTUM:
        _update_adagrad_momentum(weights, w, slots, s, sums, g, dim, rate, parameters, t)
    elif code == ADAM:
        _update_adam(weights, w, slots, s, sums, g, dim, rate, parameters, t)
    else:
        _update_ftrl(weights, w, slots, s, sums, g, dim, rate, parameters, t)
    if parameters[t, _WEIGHT_MIN] != -_INFINITY or parameters[t, _WEIGHT_MAX] != _INFINITY:
        _limit(weights, w, dim, parameters[t, _WEIGHT_MIN], parameters[t, _WEIGHT_MAX])
