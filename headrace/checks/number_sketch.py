"""Counts of numbers in bins of equal relative width: small, and merged without loss.

The bins are those of DDSketch (Masson, Rim, Lee: "DDSketch", VLDB 2019): the bin of x > 0 is the ceiling of log x to the base 1.02, so that a quantile is within
1 % of a value that is in the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from transforms.derived_documents import whole
from transforms.documents import Part

#: The ratio of the ends of a bin.
RATIO = 1.02
_LOG = float(np.log(RATIO))
#: Bins of positive numbers begin here, those of negative ones mirror them; 0 is the bin 0. Every float64 has a bin.
_ONE = 40_000
_MOST_BIN = 2 * _ONE
_MOST_BINS = 2 * _MOST_BIN + 1


def _number(part: Part) -> float:
    return part.number(-np.inf)


@dataclass(frozen=True, slots=True)
class NumberSketch:
    """The distribution of numbers.

    Attributes:
        bins: numbers of the bins that hold values, ascending; the order of bins is that of numbers.
        counts: values of each bin.
        least: the least value; 0 without values.
        most: the greatest value; 0 without values.
        not_finite: NaN and infinities, which are in no bin.

    Raises :class:`ValueError` for lists that contradict each other.
    """

    bins: tuple[Annotated[int, whole(-_MOST_BIN, _MOST_BIN)], ...] = ()
    counts: tuple[Annotated[int, whole(1)], ...] = ()
    least: Annotated[float, _number] = 0.0
    most: Annotated[float, _number] = 0.0
    not_finite: Annotated[int, whole(0)] = 0

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for members that contradict each other."""
        ascends = all(a < b for a, b in zip(self.bins, self.bins[1:], strict=False))
        if len(self.bins) != len(self.counts) or len(self.bins) > _MOST_BINS or not ascends:
            raise part.at("bins").refused("ascending numbers, one for each count")
        if self.least > self.most:
            raise part.at("least").refused("at most the greatest value")

    @property
    def values(self) -> int:
        """The number of finite values."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The value that this share of the values is at most, within 1 %; None without values."""
        if not self.bins:
            return None
        upto = np.cumsum(self.counts)
        found = int(np.searchsorted(upto, share * upto[-1]))
        return float(min(max(_middle(self.bins[min(found, len(self.bins) - 1)]), self.least), self.most))


def sketch_numbers(values: np.ndarray) -> NumberSketch:
    """The distribution of an array of numbers."""
    numbers = np.asarray(values, np.float64)
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return NumberSketch(not_finite=len(numbers))
    with np.errstate(divide="ignore"):
        sizes = np.ceil(np.log(np.abs(finite)) / _LOG)
    places = np.where(finite == 0, 0, np.sign(finite) * (np.clip(sizes, 1 - _ONE, _ONE) + _ONE)).astype(np.int64)
    bins, counts = np.unique(places, return_counts=True)
    return NumberSketch(
        tuple(bins.tolist()),
        tuple(counts.tolist()),
        float(finite.min()),
        float(finite.max()),
        len(numbers) - len(finite),
    )


def merged_numbers(sketches: Sequence[NumberSketch]) -> NumberSketch:
    """The distribution of the values of all: that of one sketch of them."""
    bins = np.concatenate([np.asarray(one.bins, np.int64) for one in sketches]) if sketches else np.zeros(0, np.int64)
    counts = [count for one in sketches for count in one.counts]
    distinct, places = np.unique(bins, return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, places, counts)
    filled = [one for one in sketches if one.bins]
    return NumberSketch(
        tuple(distinct.tolist()),
        tuple(sums.tolist()),
        min((one.least for one in filled), default=0.0),
        max((one.most for one in filled), default=0.0),
        sum(one.not_finite for one in sketches),
    )


def _middle(place: int) -> float:
    if place == 0:
        return 0.0
    size = float(np.exp((abs(place) - _ONE - 0.5) * _LOG))
    return size if place > 0 else -size
