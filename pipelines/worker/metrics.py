"""Prometheus metrics of a worker and of the queue, at ``/metrics``, for this machine only.

The queue is read on request, at most every ``cache_secs``, and less often if a read takes long. Failed reads are counted.
Imports ``prometheus_client`` (the extra ``metrics``).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipelines.worker.report import WorkerReport
from transforms.errors import HeadraceError, InputError
from warehouse.queue.backlog import read_backlog
from warehouse.scheduling.backlog import Backlog
from warehouse.scheduling.capacity import CapacityHint, CapacitySettings, FleetState, workers_wanted
from warehouse.warehouse import Warehouse

_LOG = logging.getLogger(__name__)

#: Many workers read the queue, which takes long if it is long: each waits this many times the duration of a read.
_LEAST_REST = 20
#: Only processes of this machine can connect, since the metrics name clients.
HOST = "127.0.0.1"


#: Requests at once, whose connections have a thread each; more are closed unread.
_MOST_REQUESTS = 16
#: A request's bytes must come within it, one after the other.
_SILENCE_SECS = 10.0


@dataclass(frozen=True, slots=True)
class _Seen:
    backlog: Backlog
    hint: CapacityHint


class WorkerCollector(Collector):
    """The metrics of one worker, from its ``report``, and of its warehouse's queue. ``monotonic`` is the clock of the cache."""

    def __init__(
        self,
        warehouse: Warehouse,
        worker: str,
        report: WorkerReport,
        settings: CapacitySettings,
        *,
        cache_secs: float = 5.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warehouse, self._worker, self._report, self._settings = warehouse, worker, report, settings
        self._cache_secs, self._monotonic, self._lock = cache_secs, monotonic, threading.Lock()
        self._read_at, self._kept_secs = -float("inf"), 0.0
        self._seen: _Seen | None = None
        self._wishes: tuple[tuple[float, int], ...] = ()
        self._unreadable = 0

    def collect(self) -> Iterator[Metric]:
        """All metrics; those of the queue are absent while it cannot be read."""
        with self._lock:
            seen = self._look()
        yield from self._worker_figures()
        if seen is not None:
            yield from _queue_figures(seen.backlog)
            yield from _hint_figures(seen.hint)

    def describe(self) -> Iterator[Metric]:
        """No metrics, so that registering reads no catalog."""
        return iter(())

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

    def _worker_figures(self) -> Iterator[Metric]:
        done = self._report
        for name, what, value in (
            ("tasks_committed", "Memos that are ready by this worker's commit.", done.memos),
            ("tasks_failed", "Attempts of this worker that failed.", done.failures),
            ("tasks_fenced", "Tasks that another worker leased before this one committed.", done.fenced),
            ("rows", "Events, once for each memo that this worker committed.", done.rows),
            ("raw_bytes_read", "Size in memory of the raw columns that this worker read.", done.raw_bytes_read),
            ("jobs", "Beam jobs that this worker started.", done.jobs),
            ("job_seconds", "Run time of this worker's jobs, in seconds.", done.job_secs),
            (
                "catalog_busy",
                "Times that the catalog was locked for longer than its timeout, or unreachable.",
                done.times_busy,
            ),
            ("queue_unreadable", "Times that the queue could not be read for these metrics.", self._unreadable),
        ):
            family = CounterMetricFamily(f"headrace_{name}", what, labels=["worker"])
            family.add_metric([self._worker], value)
            yield family


def _queue_figures(backlog: Backlog) -> Iterator[Metric]:
    depth = GaugeMetricFamily("headrace_queue_tasks", "Tasks by client and state.", labels=["client", "state"])
    oldest = GaugeMetricFamily("headrace_queue_oldest_seconds", "Waiting time of the oldest task.", labels=["client"])
    work = GaugeMetricFamily("headrace_queue_core_seconds", "Estimated seconds of one core.", labels=["client"])
    for one in backlog.clients:
        depth.add_metric([one.client, "queued"], one.queued)
        depth.add_metric([one.client, "leased"], one.leased)
        depth.add_metric([one.client, "failed"], one.failed)
        oldest.add_metric([one.client], one.oldest_secs)
        work.add_metric([one.client], one.secs)
    yield from (depth, oldest, work)
    yield GaugeMetricFamily("headrace_leasing_workers", "Workers that hold leases.", value=backlog.workers)


def _hint_figures(hint: CapacityHint) -> Iterator[Metric]:
    wanted = GaugeMetricFamily(
        "headrace_client_wanted_workers", "Number of workers that a client's deadline needs.", labels=["client"]
    )
    for one in hint.clients:
        wanted.add_metric([one.client], one.workers)
    yield wanted
    yield GaugeMetricFamily("headrace_wanted_workers", "Number of workers that the queue needs.", value=hint.workers)
    yield GaugeMetricFamily(
        "headrace_drain_seconds", "Time until the queue is empty with that number of workers.", value=hint.drain_secs
    )


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.BoundedSemaphore(_MOST_REQUESTS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, OSError):  # the client has ended the connection
            _LOG.info("a request for metrics ended: %s", error)
        else:
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_SECS

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug("%s", ascii(format % args))


@contextmanager
def serve_metrics(collector: WorkerCollector, port: int) -> Iterator[int]:
    """Serve the metrics while the block runs; yields the port, which the system chooses if ``port`` is 0.

    Raises :class:`InputError` when the port is taken.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server = make_server(HOST, port, make_wsgi_app(registry), _Server, _Handler)
    except (OSError, OverflowError) as error:
        raise InputError("metrics cannot be served at this port", where="--metrics-port",
                         value=f"{port}: {error}", allowed="a free port, 0 to 65535; 0 lets the system choose",
                         next_step="give another port") from error  # fmt: skip
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
