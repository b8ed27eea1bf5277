"""Features as points of a plane, which are as far from each other as a strategy wants them. Pure and deterministic.

Luo et al., "Disaggregated Multi-Tower" (MLSys 2024), the tower partitioner: distances come from interactions, and points with these
Euclidean distances are learned by Adam on the squared error. Groups of near points then become towers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.towers.interactions import Interactions
from transforms.arrays import Array

#: Features that interact are near each other, and share a tower.
COHERENT: Final = "coherent"
#: Features that interact are far from each other, and are in different towers.
DIVERSE: Final = "diverse"
#: Feature i is in tower i modulo the towers; interactions are not used.
STRIDED: Final = "strided"
STRATEGIES: Final = (DIVERSE, COHERENT, STRIDED)

_STARTS, _FEW = 4, 300
_STEPS, _RATE, _DECAY = 400, 0.05, 0.988
_FIRST_MOMENT, _SECOND_MOMENT, _TINY = 0.9, 0.999, 1e-12


def distances_of(interactions: Interactions, strategy: str) -> Array:
    """The distances that a strategy wants, float64 [features, features] with zeros on the diagonal. Raises :class:`ConfigError`."""
    if strategy not in (DIVERSE, COHERENT):
        raise ConfigError(
            "a strategy of distances must be known", value=strategy[:80], allowed=f"{DIVERSE} or {COHERENT}"
        )
    found = interactions.matrix()
    found = found if strategy == DIVERSE else 1.0 - found
    np.fill_diagonal(found, 0.0)
    return found


@dataclass(frozen=True, slots=True)
class PlanePoints:
    """Points of a plane.

    Attributes:
        points: x and y of each feature.
        error: the root of the mean squared difference between the distances of two points and the wanted ones; 0 for a single point.
    """

    points: tuple[tuple[float, float], ...]
    error: float

    def array(self) -> Array:
        """The points, float64 [features, 2]."""
        return np.array(self.points, np.float64).reshape(-1, 2)


def embed(distances: Array, *, seed: int) -> PlanePoints:
    """Points with nearly these ``distances``, a symmetric matrix [features, features]; centred on (0, 0).

    The best of a few starts, by their error; equal distances and seeds give equal points. Raises :class:`ConfigError` for distances that are not finite or negative.
    """
    if not (np.isfinite(distances).all() and (distances >= 0).all()):
        raise ConfigError("distances must be finite numbers", value="NaN, infinite or negative", allowed=">= 0")
    random = np.random.default_rng(seed)
    found = [_embedded(random.normal(0.0, 0.5, (len(distances), 2)), distances) for _ in range(_starts(len(distances)))]
    return min(found, key=lambda one: one.error)


def _starts(features: int) -> int:
    """How many points are tried; a single step of many features takes long."""
    return _STARTS if features <= _FEW else 1


def _embedded(points: Array, distances: Array) -> PlanePoints:
    """Points after all steps of Adam from those given."""
    first, second, rate = np.zeros_like(points), np.zeros_like(points), _RATE
    for step in range(1, _STEPS + 1):
        gradient = _gradient(points, distances)
        first += (1 - _FIRST_MOMENT) * (gradient - first)
        second += (1 - _SECOND_MOMENT) * (np.square(gradient) - second)
        mean, spread = first / (1 - _FIRST_MOMENT**step), second / (1 - _SECOND_MOMENT**step)
        points = points - rate * mean / (np.sqrt(spread) + 1e-8)
        rate *= _DECAY
    points = points - points.mean(axis=0, keepdims=True)
    return PlanePoints(tuple((float(x), float(y)) for x, y in points), _error(points, distances))


def _gradient(points: Array, distances: Array) -> Array:
    """The gradient of the mean over the other features of the squared errors of distances, [features, 2]."""
    across, up, lengths = _apart(points)
    pull = 1.0 - distances / np.maximum(lengths, _TINY)
    np.fill_diagonal(pull, 0.0)
    found: Array = np.stack([np.einsum("ij,ij->i", pull, across), np.einsum("ij,ij->i", pull, up)], axis=1)
    return found * (2 / max(len(points) - 1, 1))


def _apart(points: Array) -> tuple[Array, Array, Array]:
    """The differences of x and of y of each pair of points, and their distances, [features, features] each."""
    across, up = points[:, 0, None] - points[None, :, 0], points[:, 1, None] - points[None, :, 1]
    return across, up, np.sqrt(across * across + up * up)


def _error(points: Array, distances: Array) -> float:
    size = len(points)
    if size < 2:
        return 0.0
    return float(np.sqrt(np.square(_apart(points)[2] - distances).sum() / (size * (size - 1))))
