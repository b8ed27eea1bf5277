"""The slots of rows that go on under another optimizer. Pure.

Sums of squared gradients mean the same to each optimizer that has them, and so do counted updates: those stay. All other slots begin as
those of a new row, but for FTRL's linear terms: weights follow from them, so they begin where the weights are what they were.
"""

from __future__ import annotations

import numpy as np

from trainer.tables.optimizers import FTRL, AdagradMomentum, Optimizer, Slot, current_learning_rate
from transforms.arrays import Array

_SUMS, _COUNTS, _LINEARS = "accumulators", "updates", "linears"


def slots_of_other(before: Optimizer, after: Optimizer, weights: Array, slots: Array) -> Array:
    """The slots under which rows go on with the optimizer ``after``.

    Args:
        weights: float32 [rows, dim].
        slots: float32 [rows, slot_width(before, dim)].

    Returns:
        float32 [rows, slot_width(after, dim)]: ``slots`` themselves for an optimizer of the same kind. A row-wise sum is the mean of the sums of
        the columns, and the sum of each column is the row-wise one. No sum is below that of a new row, by which an update may divide.
    """
    if type(before) is type(after):
        return slots
    dim, kept, meanings = weights.shape[1], _kept(before, slots, weights.shape[1]), _meanings(after)
    found = dict[str, Array]()
    for slot in after.slots:
        width = _width(slot, dim)
        values = np.full((len(weights), width), slot.initial, np.float32)
        if slot.name in meanings & kept.keys():
            values = np.maximum(_in_columns(kept[slot.name], width), values)
        found[slot.name] = values
    if isinstance(after, FTRL):
        found[_LINEARS] = _linears(after, weights, found[_SUMS])
    return np.concatenate([np.zeros((len(weights), 0), np.float32), *found.values()], axis=1)


def _meanings(optimizer: Optimizer) -> frozenset[str]:
    """The slots of an optimizer that mean the same to others."""
    names = {_COUNTS, _SUMS}
    if isinstance(optimizer, AdagradMomentum) and optimizer.beta2 < 1:
        names = {_COUNTS}  # its accumulators are means, which fade
    return frozenset(slot.name for slot in optimizer.slots if slot.name in names)


def _kept(before: Optimizer, slots: Array, dim: int) -> dict[str, Array]:
    """By name, the slots that may stay."""
    found, first, names = dict[str, Array](), 0, _meanings(before)
    for slot in before.slots:
        stop = first + _width(slot, dim)
        if slot.name in names:
            found[slot.name] = slots[:, first:stop]
        first = stop
    return found


def _width(slot: Slot, dim: int) -> int:
    return 1 if slot.is_row_wise else dim


def _in_columns(values: Array, width: int) -> Array:
    """Values of each row in so many columns."""
    if values.shape[1] == width:
        return values
    if width == 1:
        mean: Array = values.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
        return mean
    return np.repeat(values, width, axis=1)


def _linears(optimizer: FTRL, weights: Array, sums: Array) -> Array:
    """The linear terms from which FTRL's formula gives these weights: 0 for a weight of 0."""
    rate = current_learning_rate(optimizer)
    power = sums.astype(np.float64) ** -optimizer.learning_rate_power
    scale = (power + optimizer.beta) / rate + 2 * optimizer.l2_regularization_strength
    found = -weights.astype(np.float64) * scale - np.sign(weights) * optimizer.l1_regularization_strength
    if optimizer.multiply_linear_by_learning_rate:
        found *= rate
    linears: Array = found.astype(np.float32)
    return linears
