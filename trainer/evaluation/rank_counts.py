"""How often an event with label 1 outranks one with label 0, in whole numbers: the area under the ROC curve without any rounding.

The pairs of positives and negatives are counted in parts: the events of each label are cut into one part for each thread, parts are sorted, and
each pair of parts is counted by one pass over both. Sums of whole numbers do not depend on how events were cut.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from trainer.evaluation.ordered_keys import ordered_keys
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_MOST_THREADS: Final = 16
#: Fewer events are counted by one thread.
_FEW_EVENTS: Final = 1 << 18
#: Fewer equal keys take less memory one by one than with their number.
_LONG_RUN: Final = 4


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
    positives, negatives = keys[is_positive], keys[~is_positive]
    return RankCounts(
        len(positives), len(negatives), twice_wins(CountedKeys(positives), CountedKeys(negatives), threads=threads)
    )


@dataclass(frozen=True, slots=True, eq=False)
class CountedKeys:
    """Keys of scores.

    Attributes:
        each: keys of one event each, in any order; sorted in place.
        runs: other keys, ascending, of several events.
        run_counts: their events, int64 [runs].
    """

    each: Array
    runs: Array | None = None
    run_counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of_sorted(cls, keys: Array) -> CountedKeys:
        """Ascending keys, those of at least :data:`_LONG_RUN` events as runs."""
        events, count = _run_totals(keys, _LONG_RUN)
        each, runs, counts = (
            np.empty(len(keys) - events, keys.dtype),
            np.empty(count, keys.dtype),
            np.empty(count, np.int64),
        )
        _cut_runs(keys, _LONG_RUN, each, runs, counts)
        return cls(each, runs, counts)

    @property
    def events(self) -> int:
        """Their number."""
        return len(self.each) + int(self.run_counts.sum())


def twice_wins(positives: CountedKeys, negatives: CountedKeys, *, threads: int = 0) -> int:
    """Twice the pairs whose positive has the higher key, and once those of equal keys; ``threads`` as in :func:`rank_counts`."""
    is_small = len(positives.each) + len(negatives.each) < _FEW_EVENTS
    team = 1 if is_small else threads or min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    once = np.zeros(0, np.int64)
    parts = [[(one, once) for one in np.array_split(keys.each, team)] for keys in (positives, negatives)]
    with ThreadPoolExecutor(team) as pool:
        list(pool.map(np.ndarray.sort, [one for one, _ in (*parts[0], *parts[1])]))
        for found, keys in zip(parts, (positives, negatives), strict=True):
            if keys.runs is not None and len(keys.runs):
                found.append((keys.runs, keys.run_counts))
        pairs = [(*own, *other) for own in parts[0] for other in parts[1]]
        return sum(map(int, pool.map(lambda pair: _twice_wins(*pair), pairs)))


@compiled
def _twice_wins(positives: Array, own: Array, negatives: Array, other: Array) -> int:
    """The wins of sorted keys. ``own``, ``other``: the events of each key of a label; none: one each."""
    first, end, below, reached, count, total = 0, 0, 0, 0, len(negatives), 0
    for k in range(len(positives)):
        key = positives[k]
        while first < count and negatives[first] < key:
            below += other[first] if len(other) else 1
            first += 1
        if end < first:
            end, reached = first, below
        while end < count and negatives[end] == key:
            reached += other[end] if len(other) else 1
            end += 1
        total += (own[k] if len(own) else 1) * (below + reached)
    return total


@compiled
def _run_totals(keys: Array, least: int) -> tuple[int, int]:
    """The events of the runs of at least ``least`` equal keys, and the number of these runs."""
    events, count, start = 0, 0, 0
    for k in range(1, len(keys) + 1):
        if k == len(keys) or keys[k] != keys[start]:
            if k - start >= least:
                events += k - start
                count += 1
            start = k
    return events, count


@compiled
def _cut_runs(keys: Array, least: int, each: Array, runs: Array, counts: Array) -> None:
    """Write the keys of shorter runs to ``each``, and the others once, with the lengths of their runs."""
    at, number, start = 0, 0, 0
    for k in range(1, len(keys) + 1):
        if k == len(keys) or keys[k] != keys[start]:
            if k - start >= least:
                runs[number], counts[number] = keys[start], k - start
                number += 1
            else:
                each[at : at + k - start] = keys[start]
                at += k - start
            start = k
