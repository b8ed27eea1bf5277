"""Waiting for a catalog that cannot be reached: a database that is restarted or fails over must not end its workers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from transforms.errors import Busy
from warehouse.backoff import Backoff
from warehouse.errors import CommitInDoubt

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

#: What is tried has made several attempts of its own, for seconds; these waits come in between.
_WAITS = Backoff(first_secs=0.5, most_secs=15.0)

#: The catalog cannot be had now. What a worker asks of it may be asked twice, so also when a commit is in doubt.
AWAY = (Busy, CommitInDoubt)
#: How long a worker waits for its catalog.
PATIENCE_SECS = 600.0


def next_wait_secs(tries: int, waited_secs: float, patience_secs: float, draw: float) -> float | None:
    """How long to wait after try number ``tries`` (from 1), ``waited_secs`` after the first one; None: give up.

    ``draw``: a random number in ``[0, 1)``.
    """
    if waited_secs >= patience_secs:
        return None
    return min(_WAITS.wait_secs(tries, draw), patience_secs - waited_secs)


class Patience:
    """Tries again what raised one of :data:`AWAY`, for up to ``secs`` seconds without a success. ``stop`` cuts a wait short, and
    then the error is raised. ``told`` is called for each try that failed. ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        secs: float,
        stop: threading.Event,
        told: Callable[[], None],
        draw: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._secs, self._stop, self._told, self._draw, self._clock = secs, stop, told, draw, clock

    def call(self, what: Callable[[], _T]) -> _T:
        """What ``what`` returns in the end; raises the last error of :data:`AWAY`, and at once whatever else it raises."""
        begun, tries = self._clock(), 0
        while True:
            try:
                return what()
            except AWAY as error:
                tries += 1
                self._told()
                waited_secs = self._clock() - begun
                wait_secs = next_wait_secs(tries, waited_secs, self._secs, self._draw())
                if self._stop.is_set() or wait_secs is None:
                    raise
                _LOG.warning("the catalog cannot be reached (for %.0f s); trying again: %s", waited_secs, error)
                self._stop.wait(wait_secs)
