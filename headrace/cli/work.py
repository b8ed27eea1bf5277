"""``headrace work``: run a worker."""

from __future__ import annotations

import math
import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.capacity import capacity_screen, figures
from headrace.cli.options.beam import BeamOptions, Runner
from headrace.cli.options.metrics import MetricsOptions
from headrace.cli.options.option_groups import grouped
from headrace.cli.options.session import AsJson, Home, Opening, open_warehouse
from headrace.terminal.output import emit, say
from headrace.terminal.quantities import bytes_of
from headrace.terminal.stopping import ended_by_signals
from headrace.terminal.units import many
from headrace.terminal.work_progress import work_progress
from transforms.log_fields import set_process_fields

if TYPE_CHECKING:
    from headrace.screens.work import TemplateScreen
    from pipelines.worker.report import WorkerReport
    from pipelines.worker.worker import WorkerConfig
    from warehouse.warehouse import Warehouse


@grouped
def work(
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when no task is left to lease, now or soon.")
    ] = False,
    runner: Runner = "DirectRunner",
    beam_options: BeamOptions = None,
    batch_tasks: Annotated[int, typer.Option(help="Lease up to this many tasks at a time.")] = 20_000,
    batch_bytes: Annotated[
        str,
        typer.Option(
            help="Lease tasks that read and write about this much, such as 2GB. Default: 4GB in process, else no limit.",
            show_default=False,
        ),
    ] = "",
    memory_limit: Annotated[
        str,
        typer.Option(
            help="Memory of one computing process, such as 2GB; a component that needs more fails. "
            "Default: its share of the machine."
        ),
    ] = "",
    stall_secs: Annotated[
        float,
        typer.Option(help="The time limit of one operator over one fragment; a component that takes longer fails."),
    ] = 300.0,
    name: Annotated[str, typer.Option(help="This worker's name. Default: host and process number.")] = "",
    autoscale_hint: Annotated[
        bool, typer.Option("--autoscale-hint", help="Only show the number of workers that the queue needs.")
    ] = False,
    threads: Annotated[int, typer.Option(help="Threads per worker, for the hint. 0: as many as this machine has.")] = 0,
    max_workers: Annotated[int, typer.Option(help="The maximum number of workers, for the hint.")] = 100,
    home: Home = "",
    as_json: AsJson = False,
    *,
    metrics: MetricsOptions,
) -> None:
    """Lease queued tasks, compute them with Apache Beam and store the memos. Any number of workers can run at once.

    With --runner DataflowRunner and Beam's option --template_location, the next job is written there and not run.
    """
    if autoscale_hint:
        with open_warehouse(home) as warehouse:
            emit(capacity_screen(warehouse, threads, max_workers), as_json=as_json)
        return
    memory_bytes, size_bytes = bytes_of("--memory-limit", memory_limit) or 0, bytes_of("--batch-bytes", batch_bytes)
    config = _config(name, runner, beam_options or [], batch_tasks, size_bytes, memory_bytes, stall_secs)

    from headrace.views.work import worked
    from pipelines.staging.job_flags import template_location
    from pipelines.worker.report import WorkerReport

    if template_location(config.runner_options):
        emit(_template(home, config), as_json=as_json)
        return
    set_process_fields(role="worker", name=config.name)
    done = WorkerReport()
    serving = partial(figures, metrics, threads=threads, max_workers=max_workers)
    _run(home, config, done, serving, until_idle=until_idle)
    emit(worked(config.name, done), as_json=as_json)


def _run(
    home: str,
    config: WorkerConfig,
    done: WorkerReport,
    serving: Callable[[Warehouse, str, WorkerReport], AbstractContextManager[None]],
    *,
    until_idle: bool,
) -> None:
    """Work until no task is left, or until a signal; ``done`` counts the work and ``serving`` publishes it."""
    from pipelines.worker.worker import run_worker

    with (
        _report_stop(done),
        open_warehouse(home, _patiently(config, done)) as warehouse,
        work_progress() as report,
        ended_by_signals(_end_children),
        serving(warehouse, config.name, done),
    ):
        run_worker(warehouse, config, until_idle=until_idle, progress=report, report=done)


def _patiently(config: WorkerConfig, done: WorkerReport) -> Opening:
    """Opens the warehouse, and waits for an unavailable catalog as a running worker does."""
    from pipelines.worker.catalog_retry import CatalogRetry

    return CatalogRetry(config.catalog_retry_secs, Event(), done.count_busy, random.random).call


@contextmanager
def _report_stop(done: WorkerReport) -> Iterator[None]:
    """On a signal, print the number of stored memos."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        say(f"stopped after {many(done.memos, 'memo')}, which are stored; all other tasks are queued again")
        raise


def _end_children() -> None:
    from pipelines.isolation.processes import child_processes

    child_processes().shut_down()


def _config(
    name: str,
    runner: str,
    beam_options: list[str],
    batch_tasks: int,
    batch_bytes: float | None,
    memory_bytes: int,
    stall_secs: float,
) -> WorkerConfig:
    from pipelines.isolation.limits import IsolationLimits
    from pipelines.isolation.processes import child_processes
    from pipelines.runners.beam_packages import keep_beam_light

    limits = IsolationLimits(memory_bytes, stall_secs)
    if runner == "DirectRunner":
        child_processes().prepare_at_start()  # before this process has a thread or a connection
        if not beam_options:
            keep_beam_light()

    from pipelines.worker.worker import WorkerConfig
    from warehouse.scheduling.batching import BatchBudget

    # A job on other machines takes minutes to start, and spreads over them all.
    usual_bytes = BatchBudget().bytes if runner == "DirectRunner" else math.inf
    return WorkerConfig(
        name or f"{socket.gethostname()}-{os.getpid()}",
        runner,
        batch_tasks,
        usual_bytes if batch_bytes is None else batch_bytes,
        runner_flags=tuple(beam_options),
        limits=limits,
    )


def _template(home: str, config: WorkerConfig) -> TemplateScreen:
    from headrace.screens.work import TemplateScreen
    from pipelines.worker.template import write_template

    with open_warehouse(home) as warehouse, ended_by_signals():
        written = write_template(warehouse, config)
    return TemplateScreen(written.location, written.tasks, written.fragments, written.joined_columns)
