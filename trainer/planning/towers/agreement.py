"""Whether the interactions of features are those of the log, or of one training's random start. Pure and deterministic.

Two trainings of one log from different seeds agree where features interact: the correlation of their interactions over pairs of features is high.
Vectors without any relation have a mean absolute cosine above 0, too, so a single training always seems to have found interactions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.towers.interactions import Interactions
from transforms.arrays import Array

#: Trainings agree where fewer of the permutations of one training's features than this are as like the other's.
_SIGNIFICANT: Final = 0.05
_PERMUTATIONS, _MOST_PERMUTED_PAIRS = 999, 20_000_000
#: Values of permuted interactions that are held together.
_HELD: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the interactions of two trainings agree.

    Attributes:
        correlation: Pearson's, over pairs of features; 0 where one training has equal interactions of all pairs.
        chance: the share of permutations of the features of one training that agree at least as well (Mantel's test); 1 for fewer than
            four features, of which too few permutations exist.
        floor: the mean absolute cosine of unrelated vectors of the width that was compared.
    """

    correlation: float
    chance: float
    floor: float

    def __post_init__(self) -> None:
        numbers = (self.correlation, self.chance, self.floor)
        if not all(map(math.isfinite, numbers)) or not (
            -1 <= self.correlation <= 1 and 0 <= self.chance <= 1 and 0 <= self.floor <= 1
        ):
            raise ConfigError("an agreement must be a correlation, a probability and a mean of cosines", value=numbers, allowed="-1 to 1, 0 to 1, 0 to 1")  # fmt: skip

    @property
    def is_found(self) -> bool:
        """Whether the log says which features interact: the trainings agree more than by chance."""
        return self.correlation > 0 and self.chance < _SIGNIFICANT


def agreement_of(one: Interactions, other: Interactions, *, width: int) -> Agreement:
    """The agreement of two trainings, of the same features and vectors of ``width`` columns. Raises :class:`ConfigError`."""
    if one.features != other.features or width < 1:
        raise ConfigError("interactions that are compared must have the same features, and columns", value=(one.features[:8], other.features[:8], width))  # fmt: skip
    first, second = one.matrix(), other.matrix()
    floor = min(1.0, math.sqrt(2 / (math.pi * width)))
    own, theirs = _centred(first), _centred(second)
    found = float((own * theirs).sum())
    if len(own) < 4:
        return Agreement(max(-1.0, min(1.0, found)), 1.0, floor)
    orders = _permutations(len(own))
    as_like = sum(
        _as_like(own, theirs, block, found) for block in np.array_split(orders, 1 + orders.size * len(own) // _HELD)
    )
    return Agreement(max(-1.0, min(1.0, found)), (1 + as_like) / (1 + len(orders)), floor)


def mean_interactions(one: Interactions, other: Interactions) -> Interactions:
    """The mean of two trainings' interactions, which are over the same events."""
    mean = (one.matrix() + other.matrix()) / 2
    return Interactions(one.features, tuple(map(tuple, mean.tolist())), one.events)


def _centred(matrix: Array) -> Array:
    """The values of pairs, whose mean becomes 0 and whose squares add up to 1; zeros on the diagonal, and for equal values everywhere."""
    size = len(matrix)
    apart = ~np.eye(size, dtype=bool)
    found = np.where(apart, matrix - (matrix[apart].mean() if size > 1 else 0.0), 0.0)
    length = math.sqrt(float(np.square(found).sum()))
    return found / length if length > 1e-12 else np.zeros_like(found)


def _permutations(size: int) -> Array:
    """Orders of the features, [permutations, size]."""
    count = max(99, min(_PERMUTATIONS, _MOST_PERMUTED_PAIRS // size**2))
    return np.argsort(np.random.default_rng(0).random((count, size)), axis=1)


def _as_like(own: Array, theirs: Array, orders: Array, found: float) -> int:
    """How many of the orders of ``own`` agree with ``theirs`` at least as well as ``found``."""
    permuted = own[orders[:, :, None], orders[:, None, :]]
    return int((np.einsum("kij,ij->k", permuted, theirs) >= found - 1e-12).sum())
