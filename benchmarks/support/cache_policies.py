"""Policies for a given number of frames that hybrid placement is compared with, over a log of lookups in time order."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.planning.hot_rows import HotRows

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy did.

    Attributes:
        lookups, hits: all lookups, and those of rows in frames.
        distinct, distinct_hits: the same of the distinct rows of batches; 0 of a policy that does not see batches.
        moves: rows that were brought in; None of a bound.
    """

    lookups: int
    hits: int
    distinct: int = 0
    distinct_hits: int = 0
    moves: int | None = None

    @property
    def hit_rate(self) -> float:
        """The share of lookups that the frames served."""
        return self.hits / self.lookups

    @property
    def distinct_hit_rate(self) -> float:
        """The share of the distinct rows of batches that the frames served; NaN of a policy that does not see batches."""
        return self.distinct_hits / self.distinct if self.distinct else float("nan")


def batches_of(ids: Array, batch: int) -> list[tuple[Array, Array]]:
    """The distinct rows of each batch, with their lookups."""
    return [np.unique(ids[first : first + batch], return_counts=True) for first in range(0, len(ids), batch)]


def placement(batches: Sequence[tuple[Array, Array]], policy: HotRows) -> Outcome:
    """Hybrid placement: a lookup is a hit if its row was in a frame before its batch."""
    hits = distinct = distinct_hits = moves = 0
    for rows, lookups in batches:
        is_hot = policy.frames_of(rows) >= 0
        hits += int(lookups[is_hot].sum())
        distinct += len(rows)
        distinct_hits += int(np.count_nonzero(is_hot))
        moves += len(policy.decide(rows, lookups))
    return Outcome(sum(int(lookups.sum()) for _, lookups in batches), hits, distinct, distinct_hits, moves)


def clairvoyant(ids: Array, interval: int, frames: int) -> Outcome:
    """Before each interval the rows that it will look up most are put in the frames: no policy that moves rows then does better."""
    hits = 0
    for first in range(0, len(ids), interval):
        lookups = np.unique(ids[first : first + interval], return_counts=True)[1]
        hits += int(np.sort(lookups)[-frames:].sum())
    return Outcome(len(ids), hits)


def static(ids: Array, known: int, frames: int) -> Outcome:
    """The most frequent rows of the first ``known`` lookups, from then on: only the others are counted."""
    counts = np.bincount(ids[:known], minlength=int(ids.max()) + 1)
    is_hot = np.zeros(len(counts), np.bool_)
    is_hot[np.argsort(-counts, kind="stable")[:frames]] = True
    return Outcome(len(ids) - known, int(np.count_nonzero(is_hot[ids[known:]])), moves=frames)


def least_recently_used(ids: Array, frames: int) -> Outcome:
    """A row is brought in at each miss, in place of the one whose last lookup was longest ago."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for row in ids.tolist():
        if row in held:
            hits += 1
            held.move_to_end(row)
            continue
        held[row] = None
        if len(held) > frames:
            held.popitem(last=False)
    return Outcome(len(ids), hits, moves=len(ids) - hits)


def least_frequently_used(ids: Array, frames: int) -> Outcome:
    """A row is brought in at each miss, in place of the one with the fewest lookups, all of which count; of equals the oldest."""
    counts = np.zeros(int(ids.max()) + 1, np.int64).tolist()
    held: dict[int, tuple[int, int]] = {}
    queue: list[tuple[int, int, int]] = []
    hits = 0
    for at, row in enumerate(ids.tolist()):
        counts[row] += 1
        if row in held:
            hits += 1
        elif len(held) == frames:
            while held.get(queue[0][2]) != queue[0][:2]:
                heapq.heappop(queue)
            del held[heapq.heappop(queue)[2]]
        held[row] = counts[row], at
        heapq.heappush(queue, (counts[row], at, row))
    return Outcome(len(ids), hits, moves=len(ids) - hits)


def belady(ids: Array, frames: int) -> Outcome:
    """At each miss a row may be brought in for the one that is looked up last: no policy that brings in rows at misses hits more."""
    count = len(ids)
    following = np.full(count, count)
    order = np.argsort(ids, kind="stable")
    same = ids[order][1:] == ids[order][:-1]
    following[order[:-1][same]] = order[1:][same]
    held: dict[int, int] = {}
    queue: list[tuple[int, int]] = []
    hits = moves = 0
    for row, later in zip(ids.tolist(), following.tolist(), strict=True):
        if row in held:
            hits += 1
        else:
            if len(held) == frames:
                while held.get(queue[0][1]) != -queue[0][0]:
                    heapq.heappop(queue)
                if -queue[0][0] <= later:
                    continue
                del held[heapq.heappop(queue)[1]]
            moves += 1
        held[row] = later
        heapq.heappush(queue, (-later, row))
    return Outcome(count, hits, moves=moves)
