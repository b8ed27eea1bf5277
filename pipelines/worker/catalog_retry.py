"""Waiting for a catalog that cannot be reached: a database that is restarted or fails over must not end its workers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from transforms.errors import Busy
from warehouse.errors import CommitInDoubt
from warehouse.scheduling.backoff import Backoff, Retry

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

#: The catalog cannot be had now. What a worker asks of it may be asked twice, so also when a commit is in doubt.
CATALOG_UNAVAILABLE = (Busy, CommitInDoubt)
#: How long a worker waits for its catalog.
CATALOG_RETRY_SECS = 600.0


def catalog_backoff(secs: float = CATALOG_RETRY_SECS) -> Backoff:
    """The waits for a catalog that is away. What is tried has made several attempts of its own, for seconds."""
    return Backoff(first_secs=0.5, most_secs=15.0, limit_secs=secs)


class CatalogRetry:
    """Tries again what raised one of :data:`CATALOG_UNAVAILABLE`, for up to ``secs`` seconds without a success. ``stop`` cuts a wait short, and
    then the error is raised. ``on_retry`` is called for each try that failed. ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        secs: float,
        stop: threading.Event,
        on_retry: Callable[[], None],
        draw: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stop, self._on_retry = stop, on_retry
        self._retry = Retry(catalog_backoff(secs), self._is_worth_waiting, self._wait, draw, clock, _warn)

    def call(self, what: Callable[[], _T]) -> _T:
        """What ``what`` returns in the end; raises the last error of :data:`CATALOG_UNAVAILABLE`, and at once whatever else it raises."""

        def attempt() -> _T:
            try:
                return what()
            except CATALOG_UNAVAILABLE:
                self._on_retry()
                raise

        return self._retry.call(attempt)

    def _is_worth_waiting(self, error: Exception) -> bool:
        return isinstance(error, CATALOG_UNAVAILABLE) and not self._stop.is_set()

    def _wait(self, secs: float) -> None:
        self._stop.wait(secs)


def _warn(_tries: int, waited_secs: float, error: Exception) -> None:
    _LOG.warning("the catalog cannot be reached (for %.0f s); trying again: %s", waited_secs, error)
