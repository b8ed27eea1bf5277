"""One clock for all processes that share a catalog.

One worker writes the end of a lease, another compares it with the time now. Workers of a PostgreSQL catalog may run on many
machines, whose clocks differ and jump, so they use the server's time, advanced by a monotonic counter. Processes of a SQLite
catalog share a machine and its clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sqlalchemy import text

from transforms.errors import HeadraceError
from warehouse.catalog.catalog import Catalog

_LOG = logging.getLogger(__name__)

#: Seconds after which the server is asked again. In this time two clocks drift apart by far less than a lease.
_TRUSTED_SECS = 30.0


def elapsed_secs() -> float:
    """Monotonic seconds, including the time that the system slept where it counts it."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class ServerClock:
    """The time of the catalog's server, seconds since the epoch. Thread-safe.

    The server is asked every :data:`_TRUSTED_SECS`. While it does not answer, the counter advances its last answer.
    """

    def __init__(self, catalog: Catalog, elapsed: Callable[[], float] = elapsed_secs) -> None:
        self._catalog, self._elapsed = catalog, elapsed
        self._lock = threading.Lock()
        self._offset_secs: float | None = None
        self._asked_at = 0.0

    def __call__(self) -> float:
        """The time now. Raises the catalog's error if the server never answered."""
        with self._lock:
            now = self._elapsed()
            if self._offset_secs is None or now - self._asked_at > _TRUSTED_SECS:
                self._ask(now)
            assert self._offset_secs is not None, "the first request succeeds or raises"
            return self._elapsed() + self._offset_secs

    def _ask(self, before: float) -> None:
        try:
            with self._catalog.read() as connection:
                found = connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
        except HeadraceError as error:
            if self._offset_secs is None:
                raise
            _LOG.warning("the clock of the catalog's server cannot be read; its last answer is used: %s", error)
        else:
            # The server's time is that of the middle between request and answer.
            self._offset_secs = float(found) - (before + self._elapsed()) / 2
        self._asked_at = self._elapsed()


def catalog_clock(catalog: Catalog) -> Callable[[], float]:
    """The clock that all processes of this catalog must use."""
    return ServerClock(catalog) if catalog.dialect == "postgresql" else time.time
