"""Counts the requests that a service answers now, so that it can end between two of them."""

from __future__ import annotations

import threading


class RunningRequests:
    """The number of requests that are being answered; any thread may count one, which is answered in a block of ``with``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._count = self._waiting = 0

    def __enter__(self) -> None:
        """A request is answered in the block."""
        with self._lock:
            self._count += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """It is answered."""
        with self._lock:
            self._count -= 1
            if self._waiting:
                self._changed.notify_all()

    def wait(self, secs: float) -> bool:
        """Wait until none is answered, at most so long; whether none is."""
        with self._lock:
            self._waiting += 1
            try:
                return self._changed.wait_for(lambda: not self._count, secs)
            finally:
                self._waiting -= 1
