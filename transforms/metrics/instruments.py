"""Histograms that a process records into. Any thread may; a record takes less than a microsecond."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from types import TracebackType

from transforms.metrics.declarations import SECONDS
from transforms.metrics.families import Distribution


class Histogram:
    """Counts of observations by bucket; a value at an upper limit is below it.

    ``bounds``: the upper limits of the buckets, ascending. ``clock``: monotonic seconds, of :meth:`timed`.
    """

    __slots__ = ("_bounds", "_clock", "_counts", "_lock", "_total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS, clock: Callable[[], float] = time.perf_counter) -> None:
        self._bounds, self._clock = bounds, clock
        self._counts, self._total = [0] * (len(bounds) + 1), 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Count a value, in the unit of the bounds."""
        bucket = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[bucket] += 1
            self._total += value

    def timed(self) -> Timed:
        """A context whose seconds are observed, unless it raises."""
        return Timed(self, self._clock)

    def reading(self) -> Distribution:
        """The observations so far."""
        with self._lock:
            return Distribution(tuple(self._counts), self._total)


class Timed:
    """Observes the seconds of a block that ends without an error."""

    __slots__ = ("_began", "_clock", "_histogram")

    def __init__(self, histogram: Histogram, clock: Callable[[], float]) -> None:
        self._histogram, self._clock, self._began = histogram, clock, 0.0

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._histogram.observe(self._clock() - self._began)


class LabelledHistograms:
    """A histogram for each value of a label, made at its first observation. Values must come from a closed set."""

    __slots__ = ("_bounds", "_by_value", "_lock")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds, self._by_value = bounds, dict[str, Histogram]()
        self._lock = threading.Lock()

    def observe(self, label: str, value: float) -> None:
        """Count a value of this label."""
        found = self._by_value.get(label)
        if found is None:
            with self._lock:
                found = self._by_value.setdefault(label, Histogram(self._bounds))
        found.observe(value)

    def readings(self) -> dict[str, Distribution]:
        """The observations so far, by label."""
        with self._lock:
            known = dict(self._by_value)
        return {label: one.reading() for label, one in sorted(known.items())}
