"""The updates of the dense optimizers over one vector of all weights, in compiled code: those of :mod:`trainer.model.optimizers.dense_updates`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from transforms.arrays import Array

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
_MEAN_DECAY, _SQUARES_DECAY = np.float32(0.9), np.float32(0.999)
_ONE, _EPSILON = np.float32(1), np.float32(1e-7)
_MOMENTUM = np.float32(0.9)


def update(kind: str, rate: float, updates: int, weights: Array, gradients: Array, slots: Sequence[Array], offsets: Sequence[int], is_matrix: Sequence[bool]) -> None:  # fmt: skip
    """One update of all weights.

    Args:
        kind: the optimizer.
        rate: a :func:`~trainer.model.optimizers.optimizer_slots.step_rate`.
        updates: those before it.
        weights, gradients: float32 vectors.
        slots: of their shape.
        offsets: where each variable begins, and their end.
        is_matrix: whether each variable has two dimensions.
    """
    step = np.float32(rate)
    match kind:
        case "sgd":
            _sgd(weights, gradients, step)
        case "adagrad":
            _adagrad(weights, gradients, slots[0], step)
        case "newton":
            _newton(weights, gradients, slots[0], step)
        case "adam":
            powers = [decay ** np.float32(updates + 1) for decay in (_MEAN_DECAY, _SQUARES_DECAY)]
            corrected = step * np.sqrt(_ONE - powers[1]) / (_ONE - powers[0])
            _adam(weights, gradients, slots[0], slots[1], np.float32(corrected))
        case _:
            for (first, stop), has_trust in zip(itertools.pairwise(offsets), is_matrix, strict=True):
                own = [one[first:stop] for one in (weights, gradients, *slots)]
                (_lars if kind == "lars" else _lamb)(step, updates, has_trust, *own)


@_compiled  # type: ignore[untyped-decorator]
def _sgd(weights: Any, gradients: Any, rate: Any) -> None:
    for k in range(weights.size):
        weights[k] -= rate * gradients[k]


@_compiled  # type: ignore[untyped-decorator]
def _adagrad(weights: Any, gradients: Any, squares: Any, rate: Any) -> None:
    for k in range(weights.size):
        squares[k] += gradients[k] * gradients[k]
        weights[k] -= rate * gradients[k] / np.sqrt(squares[k] + _EPSILON)


@_compiled  # type: ignore[untyped-decorator]
def _newton(weights: Any, gradients: Any, squares: Any, rate: Any) -> None:
    for k in range(weights.size):
        squares[k] += gradients[k] * gradients[k]
        weights[k] -= rate * gradients[k] / squares[k]


@_compiled  # type: ignore[untyped-decorator]
def _adam(weights: Any, gradients: Any, means: Any, squares: Any, rate: Any) -> None:
    for k in range(weights.size):
        gradient = gradients[k]
        means[k] += (gradient - means[k]) * (_ONE - _MEAN_DECAY)
        squares[k] += (gradient * gradient - squares[k]) * (_ONE - _SQUARES_DECAY)
        weights[k] -= means[k] * rate / (np.sqrt(squares[k]) + _EPSILON)


def _lars(rate: np.float32, updates: int, has_trust: bool, weights: Array, gradients: Array, momentum: Array) -> None:
    ratio = _trust(weights, gradients) if has_trust else _ONE
    momentum *= _MOMENTUM
    momentum += rate * ratio * gradients
    weights -= momentum


def _lamb(rate: np.float32, updates: int, has_trust: bool, weights: Array, gradients: Array, means: Array, squares: Array) -> None:  # fmt: skip
    means += (gradients - means) * (_ONE - _MEAN_DECAY)
    squares += (np.square(gradients) - squares) * (_ONE - _SQUARES_DECAY)
    step = np.float32(updates + 1)
    change = means / (_ONE - _MEAN_DECAY**step)
    change /= np.sqrt(squares / (_ONE - _SQUARES_DECAY**step)) + _EPSILON
    weights -= rate * _trust(weights, change) * change


def _trust(weights: Array, change: Array) -> np.float32:
    """The norm of a weight by that of its change; 1 if either is 0."""
    norm, of_change = (math.sqrt(float(np.dot(one, one))) for one in (weights, change))
    return np.float32(norm / of_change) if norm > 0 and of_change > 0 else _ONE
