"""Retries while the catalog is unavailable, so that a restart or failover of the database ends no worker."""

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

#: Errors of an unavailable catalog. A worker's requests are idempotent, so a commit in doubt is retried too.
CATALOG_UNAVAILABLE = (Busy, CommitInDoubt)
#: The default time limit of retries.
CATALOG_RETRY_SECS = 600.0


def catalog_backoff(secs: float = CATALOG_RETRY_SECS) -> Backoff:
    """The waits between retries. Each request has already retried for some seconds by itself."""
    return Backoff(first_secs=0.5, most_secs=15.0, limit_secs=secs)


class CatalogRetry:
    """Repeats a call that raises one of :data:`CATALOG_UNAVAILABLE`.

    Args:
        secs: The time limit without a success.
        stop: Ends a wait early; the error is then raised.
        on_retry: Called for each failed try.
        draw: Random numbers in [0, 1) for the waits.
        clock: Monotonic seconds.
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
        """Return the result of ``what``; raise the last error at the time limit, and any other error at once."""

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
