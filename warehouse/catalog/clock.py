"""One clock for all processes that share a catalog.

Leases are moments that one worker writes and another one compares with. Workers of a PostgreSQL catalog may run on many machines,
whose clocks differ and jump; so they take the server's, carried on by a counter that nobody sets. Processes of a SQLite
catalog share a machine, and its clock.
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

#: How long the counter is trusted: two clocks drift apart by far less than a lease in this time.
_TRUSTED_SECS = 30.0


def elapsed_secs() -> float:
    """Seconds since some moment, never set back; where the system can say so, those it slept through too."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class ServerClock:
    """The time of the catalog's server, seconds since the epoch. Thread-safe.

    It is asked now and then; a server that does not answer leaves the last answer in force, for the counter goes on.
    """

    def __init__(self, catalog: Catalog, elapsed: Callable[[], float] = elapsed_secs) -> None:
        self._catalog, self._elapsed = catalog, elapsed
        self._lock = threading.Lock()
        self._offset_secs: float | None = None
        self._asked_at = 0.0

    def __call__(self) -> float:
        """The time now. Raises what the catalog raises, if it never answered."""
        with self._lock:
            now = self._elapsed()
            if self._offset_secs is None or now - self._asked_at > _TRUSTED_SECS:
                self._ask(now)
            assert self._offset_secs is not None, "the first question was answered, or it raised"
            return self._elapsed() + self._offset_secs

    def _ask(self, before: float) -> None:
        try:
            with self._catalog.read() as connection:
                found = connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
        except HeadraceError as error:
            if self._offset_secs is None:
                raise
            _LOG.warning("the catalog's clock cannot be read; going on without: %s", error)
        else:
            # The answer was true between the question and now.
            self._offset_secs = float(found) - (before + self._elapsed()) / 2
        self._asked_at = self._elapsed()


def catalog_clock(catalog: Catalog) -> Callable[[], float]:
    """The clock that everybody who shares this catalog should go by."""
    return ServerClock(catalog) if catalog.dialect == "postgresql" else time.time
