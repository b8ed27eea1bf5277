"""``headrace train --hosts``: a training job of several processes on this machine."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.terminal.output import say
from headrace.terminal.progress import progress_bar
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.config import TrainConfig
    from trainer.control.job_files import JobFiles
    from trainer.control.messages import JobStatus
    from trainer.launch.notices import NoticeSource
    from trainer.launch.supervisor import Supervisor
    from trainer.launch.training_job import LaunchedJob
    from trainer.scheduling.job import JobSettings
    from trainer.training.loop import TrainReport
    from trainer.training.preparation import PreparedRun
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of a job.

    Attributes:
        hosts: the number of hosts.
        readers: the number of readers; 0: as many as the hosts need, at most one a core.
        epoch_secs: the longest time between two commits; 0: commits at the ends of epochs only.
        grace_secs: the preemption notice that SIGTERM gives, and any other that does not say how long it is.
        notice_file: a file that is a notice when it appears.
        notice_http: where to listen for notices, as host:port.
        notice_metadata: the URL of the cloud's metadata server.
    """

    hosts: int = 1
    readers: int = 0
    epoch_secs: float = 0.0
    grace_secs: float = 30.0
    notice_file: str = ""
    notice_http: str = ""
    notice_metadata: str = ""


def train_job(
    warehouse: Warehouse, solution: ReadSolution, config: TrainConfig, accept_changed: bool, options: JobOptions
) -> TrainReport:
    """Train by a controller, readers and hosts, and report as :func:`trainer.training.loop.train` does.

    Raises :class:`~trainer.errors.JobHeld` for a job that a person must release.
    """
    from trainer.control.job_files import JobFiles
    from trainer.launch.training_job import make_job
    from trainer.scheduling.transitions import JobState

    files = JobFiles(Path(config.run_dir).absolute())
    began, events, status = time.monotonic(), 0, None
    first = prepared = _prepare(warehouse, solution, config, accept_changed)
    while prepared.planned_events and (status is None or status.state is JobState.DONE):
        job = make_job(prepared, files, _settings(options), home=warehouse.storage.home)
        planned = prepared.planned_events
        status = _run(job, prepared, config.run_dir, options)
        _refuse_held(status, config.run_dir)
        prepared = _prepare(warehouse, solution, config, accept_changed)  # the newest commit, and what is left
        events += planned - prepared.planned_events
    return _report(first, prepared, events, time.monotonic() - began)


def _prepare(warehouse: Warehouse, solution: ReadSolution, config: TrainConfig, accept_changed: bool) -> PreparedRun:
    from trainer.runs.lock import run_lock
    from trainer.training.preparation import prepare_run
    from warehouse.reading.reader import read_labels

    with run_lock(Path(config.run_dir)):
        labels = partial(read_labels, warehouse.storage, solution)
        skipped = lambda reason: say(f"a checkpoint was skipped: {reason}")  # noqa: E731
        return prepare_run(solution, config, labels, accept_changed=accept_changed, on_skip=skipped)


def _settings(options: JobOptions) -> JobSettings:
    import os

    from trainer.scheduling.job import JobSettings, PhaseSettings

    if not 0 <= options.grace_secs < math.inf:
        raise InputError("a grace period must be a number of seconds", where="--grace-secs", value=options.grace_secs)
    if options.hosts < 1 or options.readers < 0 or not options.epoch_secs >= 0:
        raise InputError("a job must have at least one host", where="--hosts, --readers, --epoch-secs",
                         value=(options.hosts, options.readers, options.epoch_secs), allowed="numbers from 0 on, hosts from 1 on")  # fmt: skip
    most = options.readers or max(1, os.cpu_count() or 1)
    phase = PhaseSettings(options.epoch_secs or None, least_readers=options.readers or 1, most_readers=most)
    return JobSettings(release=version("headrace"), hosts=options.hosts, initial=phase, caught_up=phase)


def _run(job: LaunchedJob, prepared: PreparedRun, run_dir: str, options: JobOptions) -> JobStatus:
    from trainer.control.job_files import JobFiles
    from trainer.launch.notices import watch_notices
    from trainer.launch.supervisor import Supervisor, SupervisorSettings

    files = JobFiles(Path(run_dir).absolute())
    done_before = job.plan.units.rows_before(job.newest.next_unit)
    with progress_bar(f"training {prepared.solution.model}", "events") as report:

        def show(status: JobStatus) -> None:
            done = job.plan.units.rows_before(status.next_unit) - done_before
            now = sum(one.progress.events for one in status.members if one.progress and one.progress.attempt == status.attempt)  # fmt: skip
            committed = status.commit_attempt == status.attempt
            report(min(done + (0 if committed else now), prepared.planned_events), prepared.planned_events,
                   _sentence(prepared, status))  # fmt: skip

        settings = SupervisorSettings(grace_secs=options.grace_secs)
        supervisor = Supervisor(files, job.spec.job, partial(_command, str(files.run_dir)), show, say, settings)
        with _signals(supervisor), watch_notices(_notice_sources(files, options), supervisor.give_notice):
            return supervisor.run(job.newest)


def _notice_sources(files: JobFiles, options: JobOptions) -> list[NoticeSource]:
    """The sources that the options name."""
    from trainer.flight.addresses import Address
    from trainer.launch.notices import FileNotice, HttpNotice, MetadataNotice

    sources: list[NoticeSource] = []
    if options.notice_file:
        sources.append(FileNotice(Path(options.notice_file), grace_secs=options.grace_secs))
    if options.notice_http:
        service = HttpNotice(
            Address.parse(options.notice_http), token=files.read_token(), grace_secs=options.grace_secs
        )
        say(f"preemption notices: POST http://{service.address}/notice, with the token in {files.token}")
        sources.append(service)
    if options.notice_metadata:
        sources.append(MetadataNotice(options.notice_metadata, grace_secs=options.grace_secs))
    return sources


def _sentence(prepared: PreparedRun, status: JobStatus) -> str:
    """The state of a job in some words."""
    from trainer.scheduling.events import RoleKind

    buffers = [one.buffer.fullness for one in status.members if one.buffer is not None]
    parts = [
        f"training {prepared.solution.model}: {str(status.state).lower().replace('_', ' ')}",
        f"epoch {status.epoch + 1}",
        f"{len(status.live(RoleKind.HOST))} hosts, {len(status.live(RoleKind.READER))} readers",
    ]
    if buffers:
        parts.append(f"buffer {min(buffers):.0%} full")
    if status.staleness_secs is not None:
        parts.append(f"{status.staleness_secs:,.0f} s stale")
    return ", ".join(parts)


def _command(run_dir: str, kind: str, name: str, options: Sequence[str]) -> list[str]:
    named = () if kind == "controller" else ("--name", name)
    return [sys.executable, "-m", "headrace", "role", kind, run_dir, *named, *options]


@contextmanager
def _signals(supervisor: Supervisor) -> Iterator[None]:
    """SIGTERM is a preemption notice; Ctrl-C stops the job after a commit, and at the second time at once."""
    acts: dict[int, Callable[[], None]] = {signal.SIGTERM: supervisor.give_notice, signal.SIGINT: supervisor.stop}

    def handle(number: int, frame: Any) -> None:
        acts[number]()

    before = {number: signal.signal(number, handle) for number in acts}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _refuse_held(status: JobStatus, run_dir: str) -> None:
    from trainer.errors import JobHeld

    if status.hold is not None:
        raise JobHeld("a job must not be held", where=status.hold.role or run_dir, value=status.hold.reason,
                      allowed="a job goes on after its hold is released",
                      next_step=f"correct the cause, then: headrace holds release {run_dir}")  # fmt: skip


def _report(first: PreparedRun, last: PreparedRun, events: int, secs: float) -> TrainReport:
    from trainer.training.loop import TrainReport

    return TrainReport(
        epochs=len(last.progress.history) - len(first.saved.progress.history if first.saved else ()),
        events=events,
        seconds=secs,
        history=tuple(last.progress.history),
        ledger=last.summary(),
        resumed_from=first.saved.path if first.saved else "",
        finished=not last.planned_events,
        checkpoint=last.saved.path if last.saved else "",
        skipped_checkpoints=first.skipped,
        unlabelled=sum(first.trainable.unlabelled.values()),
        late=first.late,
    )
