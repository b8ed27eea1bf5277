"""The metrics of the queue, which every worker may serve; all workers of a warehouse have the same values.

The queue is read on request, at most every ``cache_secs``, and less often if a read takes long. Failed reads are counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from transforms.errors import HeadraceError
from transforms.metrics.declarations import counter, gauge
from transforms.metrics.families import Family, by_label, by_labels, single
from warehouse.queue.backlog import read_backlog
from warehouse.scheduling.backlog import Backlog
from warehouse.scheduling.capacity import CapacityHint, CapacitySettings, FleetState, workers_wanted
from warehouse.warehouse import Warehouse

_LOG = logging.getLogger(__name__)

TASKS = gauge("headrace_queue_tasks", "Tasks by client and state.", "client", "state")
OLDEST = gauge("headrace_queue_oldest_seconds", "Waiting time of the oldest task.", "client")
WORK = gauge("headrace_queue_work_seconds", "Estimated seconds of one core.", "client")
LEASING = gauge("headrace_queue_leasing_workers", "Workers that hold leases.")
WANTED = gauge("headrace_queue_wanted_workers", "Number of workers that the queue needs.")
CLIENT_WANTED = gauge("headrace_queue_client_wanted_workers", "Number of workers that a client's deadline needs.", "client")  # fmt: skip
DRAIN = gauge("headrace_queue_drain_seconds", "Time until the queue is empty with that number of workers.")
UNREADABLE = counter("headrace_queue_unreadable_total", "Times that this worker could not read the queue for its metrics.")  # fmt: skip
METRICS = (TASKS, OLDEST, WORK, LEASING, WANTED, CLIENT_WANTED, DRAIN, UNREADABLE)

#: Many workers read the queue, which takes long if it is long: each waits this many times the duration of a read.
_LEAST_REST = 20


@dataclass(frozen=True, slots=True)
class _Seen:
    backlog: Backlog
    hint: CapacityHint


class QueueMetrics:
    """Reads the queue of a warehouse for its metrics. ``monotonic`` is the clock of the cache."""

    def __init__(
        self,
        warehouse: Warehouse,
        settings: CapacitySettings,
        *,
        cache_secs: float = 5.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warehouse, self._settings = warehouse, settings
        self._cache_secs, self._monotonic, self._lock = cache_secs, monotonic, threading.Lock()
        self._read_at, self._kept_secs = -float("inf"), 0.0
        self._seen: _Seen | None = None
        self._wishes: tuple[tuple[float, int], ...] = ()
        self._unreadable = 0

    def families(self) -> tuple[Family, ...]:
        """The metrics; those of the queue are absent while it cannot be read."""
        with self._lock:
            seen, unreadable = self._look(), self._unreadable
        found = () if seen is None else (*_queue_families(seen.backlog), *_hint_families(seen.hint))
        return (*found, single(UNREADABLE, unreadable))

    def _look(self) -> _Seen | None:
        started = self._monotonic()
        if started - self._read_at < self._kept_secs:
            return self._seen
        seen = self._read()
        self._read_at = self._monotonic()
        took_secs = self._read_at - started
        self._kept_secs = max(self._cache_secs, _LEAST_REST * took_secs) if self._cache_secs else 0.0
        return seen

    def _read(self) -> _Seen | None:
        try:
            backlog = read_backlog(self._warehouse)
        except HeadraceError as error:
            self._unreadable += 1
            _LOG.warning("the metrics of the queue cannot be read: %s", error)
            self._seen = None
            return None
        state = FleetState(self._warehouse.clock(), backlog.workers, self._wishes)
        hint = workers_wanted(backlog, state, self._settings)
        self._wishes, self._seen = hint.wishes, _Seen(backlog, hint)
        return self._seen


def _queue_families(backlog: Backlog) -> tuple[Family, ...]:
    clients = backlog.clients
    counts = [
        ((one.client, state), float(count))
        for one in clients
        for state, count in (("queued", one.queued), ("leased", one.leased), ("failed", one.failed))
    ]
    return (
        by_labels(TASKS, counts),
        by_label(OLDEST, {one.client: one.oldest_secs for one in clients}),
        by_label(WORK, {one.client: one.secs for one in clients}),
        single(LEASING, backlog.workers),
    )


def _hint_families(hint: CapacityHint) -> tuple[Family, ...]:
    return (
        by_label(CLIENT_WANTED, {one.client: float(one.workers) for one in hint.clients}),
        single(WANTED, hint.workers),
        single(DRAIN, hint.drain_secs),
    )
