"""Mutual information of a term and a label, by the formulas and the precision of ``tft.vocabulary``.

tf.Transform stores the share of each label among a term's events as float32. Equal counts must give equal information,
and ties are broken by the term, so this rounding affects the order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_LEAST_SHARE = 1e-6
#: The bounds of the default ``min_diff_from_avg``, and their numbers of events.
_LEAST_DIFFERENCE, _GREATEST_DIFFERENCE = 2, 25
_FEW_EVENTS, _MANY_EVENTS = 10_000, 1_000_000


@dataclass(frozen=True, slots=True)
class LabelShares:
    """The labels of the events with a term, or of all events.

    Attributes:
        events: The number of events.
        shares: The share of each label in their weight, float32.
        mean_weight: Their mean weight, float32; 1 without weights.
    """

    events: int
    shares: NDArray[np.float32]
    mean_weight: np.float32

    @property
    def weight(self) -> float:
        """The total weight."""
        return self.events * float(self.mean_weight)


def label_shares(events: int, weights: NDArray[np.float64]) -> LabelShares:
    """Shares from the weight of each label."""
    total = float(weights.sum())
    shares = weights / total if total else np.zeros_like(weights)
    return LabelShares(events, shares.astype(np.float32), np.float32(total / events if events else 0.0))


def recommended_difference(weight: float) -> int:
    """The default ``min_diff_from_avg``: from 2 for 10,000 events to 25 for a million."""
    grown = (weight - _FEW_EVENTS) / (_MANY_EVENTS - _FEW_EVENTS) * (_GREATEST_DIFFERENCE - _LEAST_DIFFERENCE)
    return int(min(_GREATEST_DIFFERENCE, max(_LEAST_DIFFERENCE, grown + _LEAST_DIFFERENCE)))


def mutual_information(found: LabelShares, everything: LabelShares, adjusted: bool, least_difference: float) -> float:
    """The mutual information of a term with the label, in bits times weight; ``adjusted``: minus its expected value.

    A label whose weight with the term differs from the expected weight by less than ``least_difference`` counts as 0.
    """
    n, x = everything.weight, found.weight
    if round(x) == round(n):
        return 0.0  # a constant has no information
    by_label = (everything.shares * everything.mean_weight).astype(np.float64) * everything.events
    clipped = np.clip(found.shares, np.float32(_LEAST_SHARE), np.float32(1 - _LEAST_SHARE))
    together = (clipped * found.mean_weight).astype(np.float64) * found.events
    information = expected = 0.0
    for y, joint in zip(by_label.tolist(), together.tolist(), strict=True):
        if y == 0 or abs((x * y / n) - joint) < least_difference:
            continue
        information += _partial_information(joint, x, y, n)
        if adjusted:
            expected += _expected_information(n, x, y)
    return information - expected if adjusted else information


def _partial_information(joint: float, x: float, y: float, n: float) -> float:
    if joint == 0 or x == 0:
        return 0.0
    return joint * ((math.log2(joint) + math.log2(n)) - (math.log2(x) + math.log2(y)))


@lru_cache(maxsize=1 << 16)
def _expected_information(n: float, x: float, y: float) -> float:
    """The expected information of one term and one label: the mean over the hypergeometric distribution."""
    if x == 0:
        return 0.0
    coefficient = -math.log2(x) - math.log2(y) + math.log2(n)
    probability = information = 0.0
    for joint, share in _hypergeometric(n, x, y):
        if joint:
            information += joint * (coefficient + math.log2(joint)) * share
        probability += share
    return information / probability


def _hypergeometric(n: float, x: float, y: float) -> Iterator[tuple[int, float]]:
    """Each count of events with the term and the label, and its probability, computed iteratively."""
    start, end = round(max(0, x + y - n)), round(min(x, y))
    numerator = _log_factorial(x) + _log_factorial(y) + _log_factorial(n - x) + _log_factorial(n - y)
    denominator = (
        _log_factorial(n)
        + _log_factorial(start)
        + _log_factorial(x - start)
        + _log_factorial(y - start)
        + _log_factorial(n - x - y + start)
    )
    for joint in range(start, end + 1):
        yield joint, math.exp(numerator - denominator)
        if joint != end:
            denominator += (
                math.log(joint + 1) - math.log(x - joint) - math.log(y - joint) + math.log(n - x - y + joint + 1)
            )


def _log_factorial(n: float) -> float:
    return math.lgamma(n + 1)
