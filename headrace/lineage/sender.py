"""Sends waiting events in a thread, so that no receiver delays or ends the work of a process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException

from headrace.lineage.receivers import Deliver, EventRefused, receiver_of
from transforms.errors import HeadraceError
from warehouse.lineage.outbox import WaitingEvent, count_waiting, drop_oldest, mark_sent, take_events
from warehouse.warehouse import Warehouse

_LOG = logging.getLogger(__name__)
_LOOK_SECS, _MOST_WAIT_SECS, _END_SECS = 2.0, 60.0, 3.0
_AT_ONCE = 50


@dataclass(slots=True)
class LineageCounts:
    """What the sender of a process has done, and found.

    Attributes:
        sent: events that the receiver took.
        refused: events that it does not accept.
        failures: times that it took no event.
        dropped: events that waited too long, while more came.
        waiting: events that waited at the last look, of all processes.
    """

    sent: int = 0
    refused: int = 0
    failures: int = 0
    dropped: int = 0
    waiting: int = 0


#: Of this process, for its metrics.
COUNTS = LineageCounts()


class LineageSender:
    """Sends the events of a warehouse from :meth:`start` until :meth:`close`.

    Args:
        warehouse: the warehouse, which must be open until :meth:`close` returns.
        deliver: to the receiver.
        counts: of what is done.
        look_secs: the wait between looks, and the shortest one after a failure.
    """

    def __init__(
        self, warehouse: Warehouse, deliver: Deliver, counts: LineageCounts, *, look_secs: float = _LOOK_SECS
    ) -> None:
        self._warehouse, self._deliver, self.counts, self._look_secs = warehouse, deliver, counts, look_secs
        self._ends = threading.Event()
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="lineage", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self, end_secs: float = _END_SECS) -> None:
        """Send what waits, within some seconds; other processes send the rest."""
        self._ends.set()
        self._thread.join(end_secs)

    def _run(self) -> None:
        failed = 0
        while True:
            is_last = self._ends.is_set()
            try:
                failed = 0 if self._send_waiting() else failed + 1
            except HeadraceError as error:  # the catalog is busy or away
                _LOG.debug("events of lineage were not looked for: %s", error)
            if is_last:
                return
            self._ends.wait(min(self._look_secs * 2**failed, _MOST_WAIT_SECS))

    def _send_waiting(self) -> bool:
        """Send all events that wait; whether the receiver took them."""
        catalog, clock = self._warehouse.catalog, self._warehouse.clock
        self.counts.waiting = catalog.query(count_waiting)
        while self.counts.waiting:
            taken = catalog.run(lambda connection: take_events(connection, clock(), _AT_ONCE))
            if not taken:
                break  # other processes send them
            done = self._sent(taken)
            rest = [one.number for one in taken[len(done) :]]
            catalog.run(lambda connection: mark_sent(connection, done, rest, clock()), idempotent=True)  # noqa: B023
            self.counts.waiting = catalog.query(count_waiting)
            if rest:
                self.counts.dropped += catalog.run(drop_oldest)
                return False
        return True

    def _sent(self, taken: tuple[WaitingEvent, ...]) -> list[int]:
        """The events that need not be sent again: those before the first one that the receiver did not take."""
        done: list[int] = []
        for one in taken:
            try:
                self._deliver(one.document)
                self.counts.sent += 1
            except EventRefused as error:
                self.counts.refused += 1
                _LOG.warning("an event of lineage was refused: %s", error)
            except (OSError, HTTPException) as error:  # urllib's errors, too
                self.counts.failures += 1
                if not self._has_warned:
                    self._has_warned = True
                    _LOG.warning("events of lineage wait in the catalog, since the receiver takes none: %s", error)
                break
            done.append(one.number)
        return done


@contextmanager
def sending_lineage(warehouse: Warehouse, make: Callable[..., LineageSender] = LineageSender) -> Iterator[None]:
    """Send the events of a warehouse while the block runs, if it has a receiver."""
    if not warehouse.config.lineage:
        yield
        return
    sender = make(warehouse, receiver_of(warehouse.config), COUNTS)
    sender.start()
    try:
        yield
    finally:
        sender.close()
