"""How strongly features interact: the cosines of their activations, averaged over events. Pure; no I/O.

Luo et al., "Disaggregated Multi-Tower" (MLSys 2024), the tower partitioner: the activations of an event are scaled to length 1, and the
interaction of two features is the absolute value of their dot product, averaged over a sample of events.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trainer.errors import ConfigError
from transforms.arrays import Array

#: The products of so many values are held at one time.
_HELD_PRODUCTS = 1 << 19


@dataclass(frozen=True, slots=True)
class Interactions:
    """The interaction of each pair of features. Raises :class:`ConfigError` for a matrix that is not one of interactions.

    Attributes:
        features: their names.
        values: a symmetric matrix with a row for each feature: means of absolute cosines, in [0, 1]; 1 on the diagonal.
        events: those of the sample.
    """

    features: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    events: int

    def __post_init__(self) -> None:
        size = len(self.features)
        if len(set(self.features)) != size:
            raise ConfigError("the features of interactions must be distinct", value=self.features[:20])
        if len(self.values) != size or any(len(row) != size for row in self.values):
            raise ConfigError("interactions must have a value for each pair of features",
                              value=(len(self.values), *{len(row) for row in self.values})[:4], allowed=f"{size} rows of {size} values")  # fmt: skip
        for i, row in enumerate(self.values):
            for j, value in enumerate(row):
                where = f"features {self.features[i]} and {self.features[j]}"
                if not (math.isfinite(value) and 0.0 <= value <= 1.0):
                    raise ConfigError("an interaction must be a mean of absolute cosines", where=where, value=value, allowed="0 to 1",
                                      next_step="weights that are not finite give no cosines: headrace ckpt verify")  # fmt: skip
                if value != self.values[j][i]:
                    raise ConfigError("interactions must be symmetric", where=where, value=(value, self.values[j][i]))
            if row[i] != 1.0:
                raise ConfigError(
                    "a feature's interaction with itself must be 1", where=f"feature {self.features[i]}", value=row[i]
                )
        if self.events < 1:
            raise ConfigError("interactions need a sample with at least one event", value=self.events, allowed=">= 1")

    def matrix(self) -> Array:
        """The values, float64 [features, features]."""
        return np.array(self.values, np.float64).reshape(len(self.features), len(self.features))


class InteractionSum:
    """Sums the cosines of batches. An event counts for a pair of features if both have an activation other than 0."""

    def __init__(self, features: tuple[str, ...]) -> None:
        self._features = features
        self._cosines = np.zeros((len(features), len(features)))
        self._counts = np.zeros((len(features), len(features)))
        self._events = 0

    @property
    def events(self) -> int:
        """The events so far."""
        return self._events

    def add(self, vectors: Array) -> None:
        """Add a batch of activations [events, features, columns]. Raises :class:`ConfigError` for values that are not finite."""
        if vectors.ndim != 3 or vectors.shape[1] != len(self._features):
            raise ConfigError("activations must have a vector for each feature and event", value=vectors.shape,
                              allowed=f"[events, {len(self._features)}, columns]")  # fmt: skip
        step = max(1, _HELD_PRODUCTS // max(1, len(self._features) ** 2))
        for first in range(0, len(vectors), step):
            self._add(np.asarray(vectors[first : first + step], np.float64))
        self._events += len(vectors)

    def _add(self, vectors: Array) -> None:
        finite = np.isfinite(vectors).all(axis=(0, 2))
        if not finite.all():
            raise ConfigError("activations must be finite", where=f"feature {self._features[int(np.argmin(finite))]}",
                              value="NaN or infinite", next_step="headrace ckpt verify; train in a fresh run directory")  # fmt: skip
        # The largest value is 1 before the squares are added, which could overflow or vanish otherwise.
        largest = np.abs(vectors).max(axis=2, keepdims=True, initial=0.0)
        scaled = np.divide(vectors, largest, out=np.zeros_like(vectors), where=largest > 0)
        lengths = np.sqrt(np.square(scaled).sum(axis=2, keepdims=True))
        unit = np.divide(scaled, lengths, out=np.zeros_like(scaled), where=lengths > 0)
        self._cosines += np.abs(unit @ unit.transpose(0, 2, 1)).sum(axis=0)
        present = (lengths[:, :, 0] > 0).astype(np.float64)
        self._counts += present.T @ present

    def mean(self) -> Interactions:
        """The interactions of all batches; 0 for two features that no event has both. Raises :class:`ConfigError` without events."""
        found = np.divide(self._cosines, self._counts, out=np.zeros_like(self._cosines), where=self._counts > 0)
        found = np.minimum((found + found.T) / 2, 1.0)
        np.fill_diagonal(found, 1.0)
        return Interactions(self._features, tuple(map(tuple, found.tolist())), self._events)
