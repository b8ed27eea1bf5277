"""The autoscale hint and the metrics of ``headrace work``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.terminal.output import say
from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.screens.capacity import CapacityScreen
    from pipelines.worker.report import WorkerReport
    from warehouse.scheduling.capacity import CapacitySettings
    from warehouse.warehouse import Warehouse


def capacity_screen(warehouse: Warehouse, threads: int, max_workers: int) -> CapacityScreen:
    """The autoscale hint for the current backlog; nothing changes."""
    from headrace.screens.capacity import CapacityScreen, ClientCapacityRow
    from warehouse.queue.backlog import read_backlog
    from warehouse.scheduling.capacity import FleetState, workers_wanted

    settings = _settings(warehouse, threads, max_workers)
    backlog = read_backlog(warehouse)
    hint = workers_wanted(backlog, FleetState(warehouse.clock(), backlog.workers), settings)
    of = {one.client: one for one in backlog.clients}
    rows = tuple(
        ClientCapacityRow(
            client=one.client,
            workers=one.workers,
            queued=of[one.client].queued,
            leased=of[one.client].leased,
            secs=of[one.client].secs,
            memo_bytes=of[one.client].memo_bytes,
            oldest_secs=of[one.client].oldest_secs,
            deadline_secs=of[one.client].deadline_secs,
            left_secs=one.left_secs,
            drain_secs=one.drain_secs,
        )
        for one in hint.clients
    )
    return CapacityScreen(
        hint.workers, settings.threads, backlog.workers, hint.binding, hint.drain_secs, hint.why, rows
    )


@contextmanager
def figures(
    warehouse: Warehouse, worker: str, report: WorkerReport, port: int | None, threads: int = 0, max_workers: int = 100
) -> Iterator[None]:
    """Serve the metrics of the worker and the queue at ``port`` while the block runs; None serves nothing.

    Port 0 lets the system choose; standard error shows the address. Raises :class:`InputError` for a taken port, and without
    ``prometheus_client``.
    """
    if port is None:
        yield
        return
    try:
        from pipelines.worker.metrics import WorkerCollector, serve_metrics
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise InputError("prometheus_client must be installed to serve metrics", where="--metrics-port", value=str(error),
                         next_step="pip install 'headrace[metrics]'") from error  # fmt: skip
    collector = WorkerCollector(warehouse, worker, report, _settings(warehouse, threads, max_workers))
    with serve_metrics(collector, port) as chosen:
        say(f"metrics for Prometheus: http://127.0.0.1:{chosen}/metrics")
        yield


def _settings(warehouse: Warehouse, threads: int, max_workers: int) -> CapacitySettings:
    """``threads``: per worker; 0 is the number of this machine."""
    from warehouse.scheduling.capacity import CapacitySettings

    return CapacitySettings(
        threads=threads or os.cpu_count() or 1,
        max_workers=max_workers,
        floor_share=warehouse.config.client_floor_share,
    )
