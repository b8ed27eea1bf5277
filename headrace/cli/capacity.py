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
    from headrace.views.capacity import capacity

    return capacity(warehouse, _settings(warehouse, threads, max_workers))


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
