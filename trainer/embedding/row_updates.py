"""Optimizers over one row: plain functions for numba, tested against float64 and TensorFlow.

``gradient[g : g + dim]`` is the row's summed gradient of one step; ``weights[w : w + dim]`` and, if any,
``slots[s : s + dim]`` are updated in place. All arithmetic is float32 in a fixed order.

Adagrad is Duchi, Hazan, Singer (JMLR 2011) as in TensorFlow on TPUs: no epsilon, a positive initial accumulator instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.kernels.compiled import pasted

Array = np.ndarray[Any, np.dtype[Any]]

SGD_CODE = 0
ADAGRAD_CODE = 1


@pasted
def sgd_row(weights: Array, w: int, gradient: Array, g: int, dim: int, learning_rate: np.float32) -> None:
    """``w ← w - learning_rate · g``."""
    for d in range(dim):
        weights[w + d] -= learning_rate * gradient[g + d]


@pasted
def adagrad_row(
    weights: Array, w: int, slots: Array, s: int, gradient: Array, g: int, dim: int, learning_rate: np.float32
) -> None:
    """``a ← a + g²; w ← w - learning_rate · g / √a``."""
    for d in range(dim):
        slots[s + d] += gradient[g + d] * gradient[g + d]
        weights[w + d] -= learning_rate * gradient[g + d] / np.sqrt(slots[s + d])
