"""``headrace work``: compute what the queues ask for."""

from __future__ import annotations

import os
import socket
from typing import Annotated

import typer

from headrace.cli.beam import BeamOptions, Runner
from headrace.cli.output import emit
from headrace.cli.quantities import bytes_of
from headrace.cli.session import AsJson, Home, open_warehouse
from headrace.cli.work_progress import work_progress


def work(
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when nothing is left to lease.")] = False,
    runner: Runner = "DirectRunner",
    beam_options: BeamOptions = None,
    batch_tasks: Annotated[int, typer.Option(help="Lease up to this many tasks at a time.")] = 20_000,
    memory_limit: Annotated[
        str, typer.Option(help="What one process that computes may hold. Default: its share of the machine.")
    ] = "",
    stall_secs: Annotated[float, typer.Option(help="How long one operator may take over one fragment.")] = 300.0,
    name: Annotated[str, typer.Option(help="This worker's name. Default: host and process number.")] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Lease queued components, compute them with Apache Beam and keep the results. Start as many as you like."""
    from pipelines.isolation.limits import IsolationLimits
    from pipelines.isolation.processes import child_processes

    limits = IsolationLimits(bytes_of("--memory-limit", memory_limit) or 0, stall_secs)
    if runner == "DirectRunner":
        child_processes().prepare()  # they get ready while this process loads Beam

    from headrace.screens.work import WorkScreen
    from pipelines.worker import WorkerConfig, run_worker

    worker = name or f"{socket.gethostname()}-{os.getpid()}"
    options = tuple(beam_options or ())
    config = WorkerConfig(worker, runner, batch_tasks, runner_flags=options, limits=limits)
    with open_warehouse(home) as warehouse, work_progress() as report:
        done = run_worker(warehouse, config, until_idle=until_idle, progress=report)
    screen = WorkScreen(
        worker=worker,
        tasks=done.tasks,
        memos=done.memos,
        failures=done.failures,
        rows=done.rows,
        raw_bytes_read=done.raw_bytes_read,
        secs=done.secs,
    )
    emit(screen, as_json=as_json)
