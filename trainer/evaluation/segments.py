"""The area under the ROC curve inside each group of events, such as those of a user or a country, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.errors import BadBatch
from trainer.evaluation.host_totals import HostTotals
from trainer.evaluation.ordered_keys import ordered_keys
from trainer.evaluation.rank_counts import RankCounts
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_KEY_BITS: Final = 32
_MOST_SEGMENTS: Final = 1 << 31


@dataclass(frozen=True, slots=True, eq=False)
class SegmentCounts:
    """The pairs of positives and negatives inside each segment, all int64 [segments].

    Attributes:
        positives, negatives: the events of each label.
        twice_wins: as that of :class:`~trainer.evaluation.rank_counts.RankCounts`.
    """

    positives: Array
    negatives: Array
    twice_wins: Array

    def areas(self) -> Array:
        """The area of each segment, float64; NaN for one without both labels."""
        pairs = 2.0 * self.positives * self.negatives
        found: Array = np.divide(self.twice_wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
        return found

    @classmethod
    def of(cls, counts: RankCounts) -> SegmentCounts:
        """Those of one segment."""
        return cls(np.array([counts.positives]), np.array([counts.negatives]), np.array([counts.twice_wins]))


def grouped_auc(parts: Sequence[SegmentCounts], totals: HostTotals) -> float:
    """The mean area of segments by their events, without those that have one label (GAUC; Zhu et al., "Optimized Cost per Click
    in Taobao Display Advertising", KDD 2017, equation 12). NaN if no segment has both labels.

    Args:
        parts: of this host, each segment on one host.
        totals: of the hosts, which call it at once.
    """
    weighed, events = [np.zeros(0)], 0
    for one in parts:
        areas, own = one.areas(), one.positives + one.negatives
        known = ~np.isnan(areas)
        weighed.append(areas[known] * own[known])
        events += int(own[known].sum())
    (total,), (count,) = totals.sums(weighed), totals.counts([events])
    return total.over(count) if count else math.nan


def segment_counts(segments: Array, count: int, is_positive: Array, scores: Array) -> SegmentCounts:
    """The pairs inside each of ``count`` segments. The same for any order of the events.

    Args:
        segments: integers [events], in [0, ``count``).
        count: at most 2**31.
        is_positive: bool [events].
        scores: [events]; see :func:`~trainer.evaluation.ordered_keys.ordered_keys`, and its errors.

    Raises:
        BadBatch: for a segment out of range, and arrays of other lengths.
    """
    if not len(segments) == len(is_positive) == len(scores) or not 0 <= count <= _MOST_SEGMENTS:
        raise BadBatch("segments, labels and scores must have the same length", value=(len(segments), len(is_positive), len(scores), count))  # fmt: skip
    own = np.asarray(segments, np.int64)
    if len(own) and not 0 <= own.min() <= own.max() < count:
        raise BadBatch(
            "a segment must be in range", value=(int(own.min()), int(own.max())), allowed=f"0 to {count - 1}"
        )
    keys = ordered_keys(scores)
    if keys.dtype != np.uint32:  # the places of different scores, which are fewer than 2**32
        keys = np.unique(keys, return_inverse=True)[1]
    joined = own.astype(np.uint64) << np.uint64(_KEY_BITS) | keys.astype(np.uint64)
    positives, negatives = np.sort(joined[is_positive]), np.sort(joined[~is_positive])
    wins = np.zeros(count, np.int64)
    _add_wins(positives, negatives, wins)
    of_positives, of_negatives = (
        np.bincount(own[of_label], minlength=count) for of_label in (is_positive, ~is_positive)
    )
    return SegmentCounts(of_positives, of_negatives, wins)


@compiled
def _add_wins(positives: Array, negatives: Array, wins: Array) -> None:
    """Add the pairs of sorted keys, segment above score, to twice the wins of each segment."""
    first, below, reached, count, before = 0, 0, 0, len(negatives), -1
    for key in positives:
        segment = int(key >> np.uint64(_KEY_BITS))
        if segment != before:
            start = np.uint64(segment) << np.uint64(_KEY_BITS)
            while below < count and negatives[below] < start:
                below += 1
            first, before = below, segment
        while below < count and negatives[below] < key:
            below += 1
        reached = max(reached, below)
        while reached < count and negatives[reached] == key:
            reached += 1
        wins[segment] += below + reached - 2 * first
