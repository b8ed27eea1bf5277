"""Virtual time: events in order of their time."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class EventLoop:
    """An event loop; ``now``: virtual seconds. Events of equal time run in the order of their scheduling."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.events = 0
        self._asked = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Schedule an action at a time, or now if that has passed."""
        self._asked += 1
        heapq.heappush(self._heap, (max(moment, self.now), self._asked, action))

    def after(self, secs: float, action: Callable[[], None]) -> None:
        """Schedule an action ``secs`` from now."""
        self.at(self.now + secs, action)

    def run(self, until: float) -> None:
        """Run all events. Raises :class:`RuntimeError` if there are events after ``until``."""
        while self._heap:
            self.now, _, action = heapq.heappop(self._heap)
            if self.now > until:
                raise RuntimeError(f"the simulation has not ended after {until:g} virtual seconds")
            self.events += 1
            action()
