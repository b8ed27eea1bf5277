"""How often an event with label 1 outranks one with label 0, in whole numbers: the area under the ROC curve without any rounding.

The pairs of positives and negatives are counted in parts: the events of each label are cut into one part for each thread, parts are sorted, and
each pair of parts is counted by one pass over both. Sums of whole numbers do not depend on how events were cut.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.evaluation.ordered_keys import ordered_keys
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_MOST_THREADS: Final = 16
#: Fewer events are counted by one thread.
_FEW_EVENTS: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class RankCounts:
    """Pairs of an event with label 1 and one with label 0.

    Attributes:
        positives, negatives: the events of each label.
        twice_wins: twice the pairs whose positive has the higher score, and once those of equal scores.
    """

    positives: int
    negatives: int
    twice_wins: int

    @property
    def auc(self) -> float:
        """The share of the pairs that the positive wins, equal scores counting half; correctly rounded. NaN without pairs."""
        pairs = self.positives * self.negatives
        return self.twice_wins / (2 * pairs) if pairs else math.nan


def rank_counts(is_positive: Array, scores: Array, *, threads: int = 0) -> RankCounts:
    """The counts of all pairs. The same for any number of threads, and for any order of the events.

    Args:
        is_positive: bool [events].
        scores: [events], floats or integers; see :func:`~trainer.evaluation.ordered_keys.ordered_keys`, and its errors.
        threads: 0: one for each core, at most 16.
    """
    keys = ordered_keys(scores)
    team = 1 if len(keys) < _FEW_EVENTS else threads or min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    positives, negatives = keys[is_positive], keys[~is_positive]
    parts = [np.array_split(one, team) for one in (positives, negatives)]
    if team == 1:
        for part in (positives, negatives):
            part.sort()
        return RankCounts(len(positives), len(negatives), int(_twice_wins(positives, negatives)))
    with ThreadPoolExecutor(team) as pool:
        list(pool.map(np.ndarray.sort, [*parts[0], *parts[1]]))
        pairs = [(own, other) for own in parts[0] for other in parts[1]]
        wins = sum(map(int, pool.map(lambda pair: _twice_wins(*pair), pairs)))
    return RankCounts(len(positives), len(negatives), wins)


@compiled
def _twice_wins(positives: Array, negatives: Array) -> int:
    """Twice the pairs of sorted keys whose positive is higher, and once those of equal keys."""
    below, reached, count, total = 0, 0, len(negatives), 0
    for key in positives:
        while below < count and negatives[below] < key:
            below += 1
        reached = max(reached, below)
        while reached < count and negatives[reached] == key:
            reached += 1
        total += below + reached
    return total
