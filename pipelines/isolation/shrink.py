"""Delta debugging: the smallest part of some events that still makes a component fail.

Zeller and Hildebrandt's ddmin: parts, then complements of parts, of finer and finer splits. The result is 1-minimal:
without any one of its events the failure does not occur. Deterministic unless the time limit ends the search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Row numbers, ascending; int64.
Rows = np.ndarray[Any, np.dtype[np.int64]]
#: Trials of at most this many rows are cached.
_REMEMBERED_ROWS = 10_000


@dataclass(slots=True)
class Budget:
    """The limits of a search; its time starts when the budget is created."""

    trials: int
    secs: float
    clock: Callable[[], float] = time.monotonic
    _started: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def spend(self) -> bool:
        """Count one trial; False if none is left."""
        self.trials -= 1
        return self.trials >= 0 and self.spent_secs < self.secs

    @property
    def spent_secs(self) -> float:
        """The time since the start."""
        return self.clock() - self._started


class _Spent(Exception):
    """The budget is used up."""


def find_smallest(rows: Rows, fails: Callable[[Rows], bool], budget: Budget) -> Rows:
    """The smallest part found of ``rows``, which fail: 1-minimal unless the budget ends the search early."""
    passed: set[bytes] = set()

    def still_fails(part: Rows) -> bool:
        key = part.tobytes() if len(part) <= _REMEMBERED_ROWS else b""
        if key in passed:
            return False
        if not budget.spend():
            raise _Spent
        found = fails(part)
        if key and not found:
            passed.add(key)
        return found

    parts = 2
    try:
        while len(rows) > 1:
            smaller = next((part for part in _parts(rows, parts) if still_fails(part)), None)
            if smaller is not None:
                rows, parts = smaller, 2
                continue
            smaller = next((part for part in _complements(rows, parts) if still_fails(part)), None)
            if smaller is not None:
                rows, parts = smaller, max(parts - 1, 2)
                continue
            if parts >= len(rows):
                break
            parts = min(2 * parts, len(rows))
    except _Spent:
        return rows
    return rows


def _parts(rows: Rows, parts: int) -> Iterator[Rows]:
    return iter(np.array_split(rows, min(parts, len(rows))))


def _complements(rows: Rows, parts: int) -> Iterator[Rows]:
    """``rows`` without each of its parts; of two parts each is the other's complement."""
    if parts > 2:
        for part in _parts(rows, parts):
            yield rows[(rows < part[0]) | (rows > part[-1])]


def ranges_of(rows: Rows) -> list[list[int]]:
    """Ascending row numbers as [first, end) ranges, the form in requests."""
    if not len(rows):
        return []
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    starts, ends = rows[np.r_[0, breaks]], rows[np.r_[breaks - 1, len(rows) - 1]] + 1
    return [[int(start), int(end)] for start, end in zip(starts, ends, strict=True)]


def rows_of(ranges: list[list[int]]) -> Rows:
    """The inverse of :func:`ranges_of`."""
    return np.concatenate([np.arange(start, end, dtype=np.int64) for start, end in ranges] or [np.empty(0, np.int64)])
