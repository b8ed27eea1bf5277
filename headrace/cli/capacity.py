"""The autoscale hint and the metrics of ``headrace work``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from transforms.metrics.registry import Registry

if TYPE_CHECKING:
    from headrace.cli.options.metrics import MetricsOptions
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
    options: MetricsOptions,
    warehouse: Warehouse,
    worker: str,
    report: WorkerReport,
    threads: int = 0,
    max_workers: int = 100,
) -> Iterator[None]:
    """Serve the metrics of the worker and the queue while the block runs, if the options name an address."""
    from headrace.metrics.process import Process

    with options.bound(Process("worker", worker)) as serve:
        if options.metrics_address:
            from pipelines.worker.queue_metrics import QueueMetrics
            from pipelines.worker.worker_metrics import worker_families

            registry = Registry()
            registry.add("worker", lambda: worker_families(report))
            registry.add("queue", QueueMetrics(warehouse, _settings(warehouse, threads, max_workers)).families)
            serve(registry)
        yield


def _settings(warehouse: Warehouse, threads: int, max_workers: int) -> CapacitySettings:
    """``threads``: per worker; 0 is the number of this machine."""
    from warehouse.scheduling.capacity import CapacitySettings

    return CapacitySettings(
        threads=threads or os.cpu_count() or 1,
        max_workers=max_workers,
        floor_share=warehouse.config.client_floor_share,
    )
