"""Initial and caught-up training of one run by one command: each phase is a training of its own, with its processes and options.

The run goes on from its newest checkpoint, so a phase may have other hosts, servers, batches and rates than the one before. Where the command
is, the run's folder says; a killed command, begun again, goes on there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from headrace.cli.options.launchers import LOCAL
from headrace.cli.options.runs import run_folder_of
from headrace.cli.options.session import open_warehouse, run_location
from headrace.cli.remote_workers import workers_of
from headrace.cli.train_options.arguments import arguments_without_file
from headrace.cli.train_options.training import TrainOptions
from headrace.screens.phases import PhasesScreen
from headrace.terminal.output import emit, say
from trainer.job.launch.phase_log import PHASES, PhaseLog, PhaseRun
from transforms.child_process import child_environment, module_command

#: Between two looks at the machines of the phases that do not train.
_LOOK_SECS = 1.0


def train_phases(phases: Mapping[str, TrainOptions]) -> None:
    """Train the initial phase until it has caught up, then the caught-up one. Exits with the status of a training that ends otherwise."""
    initial, caught_up = (phases[one] for one in PHASES)
    run, idle = caught_up.run, _IdleWorkers(phases)
    for one in phases.values():
        if one.cluster.launcher == LOCAL:
            one.device.check()  # now, and not after the phase before it
    folder = _run_folder(caught_up)
    log = PhaseLog.read(folder)
    with _stops() as stop:
        while not log.is_caught_up and not stop.is_asked:
            log, status, found = _train(PHASES[0], initial, log, folder, stop, idle)
            if status or stop.is_asked:
                return _end(log, status, [found], as_json=run.as_json)
            if log.runs[-1].has_caught_up(run.catch_up_secs):
                log = PhaseLog(is_caught_up=True, runs=log.runs)
                log.write(folder)
                say(f"caught up: the last initial training took {log.runs[-1].secs:.0f} s")
        if stop.is_asked:
            return _end(log, 130, [], as_json=run.as_json)
        log, status, found = _train(PHASES[1], caught_up, log, folder, stop, idle)
    return _end(log, status, [found], as_json=run.as_json)


class _Stop:
    """Whether the command was asked to stop, and the training that is then asked, too."""

    def __init__(self) -> None:
        self.is_asked = False
        self.child: subprocess.Popen[bytes] | None = None

    def ask(self, number: int, frame: Any) -> None:
        """Pass a signal on."""
        self.is_asked = True
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)


@contextmanager
def _stops() -> Iterator[_Stop]:
    """Ctrl-C and SIGTERM within the block are those of the training that runs."""
    stop = _Stop()
    before = {one: signal.signal(one, stop.ask) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


class _IdleWorkers:
    """The machines of the phases that do not train, of a run on a cluster: a process that was killed may have left them running."""

    def __init__(self, phases: Mapping[str, TrainOptions]) -> None:
        self._workers = {name: workers_of(one.cluster) for name, one in phases.items() if one.cluster.jobset}

    def keep_suspended(self, phase: str) -> None:
        """Suspend the JobSets of all phases but this one; call it often."""
        for name, workers in self._workers.items():
            if name != phase:
                workers.keep_suspended()


def _run_folder(options: TrainOptions) -> str:
    """The folder of the run, or its location in a bucket."""
    run, data = options.run, options.data
    if run.run_dir:
        return run_location(run.run_dir)
    from warehouse.models.models import get_model

    with open_warehouse(run.home) as warehouse, warehouse.catalog.read() as connection:
        version = get_model(connection, options.model, data.version or None).version
    return run_folder_of("", options.model, version, run.home)


def _train(
    phase: str, options: TrainOptions, log: PhaseLog, folder: str, stop: _Stop, idle: _IdleWorkers
) -> tuple[PhaseLog, int, dict[str, Any]]:
    """One training of a phase: the log with it, the exit status, and what it printed as JSON."""
    say(f"{phase.replace('_', '-')} training")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-phase-") as scratch:
        record = Path(scratch) / "training.json"
        command = module_command(
            "headrace", "--record", str(record), "train", *arguments_without_file(options), "--supervisor", str(os.getpid())
        )  # fmt: skip
        # A session of its own, so that Ctrl-C reaches it once: from this process.
        output = subprocess.DEVNULL if options.run.as_json else None
        stop.child = subprocess.Popen(command, env=child_environment(), start_new_session=True, stdout=output)
        status = _wait(stop.child, partial(idle.keep_suspended, phase))
        found = json.loads(record.read_bytes()) if record.exists() else {}
    if found:
        hosts = max(1, len(found.get("steps_by_host") or ()), options.hosts.hosts)
        log = log.with_run(
            PhaseRun(phase, hosts, options.servers.count, int(found["events_this_time"]), time.monotonic() - began)
        )
        log.write(folder)
    return log, status if status >= 0 else 128 - status, found


def _wait(child: subprocess.Popen[bytes], look: Callable[[], None]) -> int:
    """The status of a process when it ends; ``look`` is called meanwhile."""
    while True:
        look()
        with suppress(subprocess.TimeoutExpired):
            return child.wait(_LOOK_SECS)


def _end(log: PhaseLog, status: int, trainings: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print the phases, and end with the status of the last training."""
    emit(PhasesScreen.of(log, trainings), as_json=as_json)
    if status:
        sys.exit(status)
