"""Count, mean and variance of numbers, by the formulas of tf.Transform's ``WeightedMeanAndVarCombiner``.

Floating-point sums depend on the order of addition. :func:`ordered_sum` uses the order of TensorFlow's CPU kernel with
vectors of four float64, so that every machine computes the same bits as ``tft.var`` does there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.analysis.batch import Batch
from transforms.operators.declaration import Scalar

_LANES = 4
_UNROLLED = 4 * _LANES
#: A longer array is split into two halves that are summed separately.
_LEAF_VALUES = 1024 * _LANES
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True)
class Moments:
    """``count`` finite numbers with their ``mean`` and population ``variance``."""

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def merge(self, other: Moments) -> Moments:
        """The moments of both. The smaller is added to the larger, ``other`` to ``self`` if equal, as in tf.Transform."""
        a, b = (self, other) if self.count >= other.count else (other, self)
        if not b.count:
            return a
        total = a.count + b.count
        share, difference = b.count / total, b.mean - a.mean
        mean = a.mean + share * difference
        variance = a.variance + share * (b.variance - a.variance + (b.mean - mean) * difference)
        return Moments(total, _bounded(mean), _bounded(variance))


def moments_of(values: NDArray[np.float64]) -> Moments:
    """The moments of finite float64 numbers, in two passes."""
    if not len(values):
        return Moments()
    with np.errstate(over="ignore", invalid="ignore"):
        mean = ordered_sum(values) / len(values)
        variance = ordered_sum(np.square(values - mean)) / len(values)
    return Moments(len(values), _bounded(mean), _bounded(variance))


def ordered_sum(values: NDArray[np.float64]) -> float:
    """The sum in a fixed order: four vectors of four lanes, then the lanes; halves of a long array separately."""
    count = len(values)
    if count > _LEAF_VALUES:
        half = (count + 1) // 2
        split = min(count, (half + _LANES - 1) // _LANES * _LANES)
        left = ordered_sum(values[:split])
        return left + ordered_sum(values[split:]) if split < count else left
    unrolled, vectorised = count - count % _UNROLLED, count - count % _LANES
    lanes = np.zeros(_LANES)
    if unrolled:
        first, second, third, fourth = np.add.reduce(values[:unrolled].reshape(-1, 4, _LANES), axis=0)
        lanes = ((first + second) + third) + fourth
    for start in range(unrolled, vectorised, _LANES):
        lanes = lanes + values[start : start + _LANES]
    rest = 0.0
    for value in values[vectorised:].tolist():
        rest += value
    one, two, three, four = lanes.tolist()
    return float(rest + ((one + three) + (two + four)))


def _bounded(value: float) -> float:
    """NaN as 0 and infinities as the largest numbers, as in tf.Transform."""
    if math.isfinite(value):
        return value
    return 0.0 if math.isnan(value) else math.copysign(_LARGEST, value)


class MomentsAccumulator:
    """Mean and standard deviation, as ``tft.var`` with a second output."""

    def __init__(self) -> None:
        self._found = Moments()

    def add(self, batch: Batch) -> None:
        """Add a batch of numbers."""
        values = batch.items.to_numpy(zero_copy_only=False)
        self._found = self._found.merge(moments_of(values))

    def contribution(self) -> pa.RecordBatch:
        """One row: count, mean, variance."""
        found = self._found
        return pa.record_batch({"count": [found.count], "mean": [found.mean], "variance": [found.variance]})

    def merge(self, contribution: pa.RecordBatch) -> None:
        """Merge the contribution of a later partition."""
        (row,) = contribution.to_pylist()
        self._found = self._found.merge(Moments(row["count"], row["mean"], row["variance"]))

    def extract(self, params: Mapping[str, Scalar]) -> pa.Array:
        """The mean and the standard deviation; empty for no numbers."""
        found = self._found
        if not found.count:
            return pa.array([], pa.float64())
        return pa.array([found.mean + 0.0, math.sqrt(found.variance)], pa.float64())
