"""The process that runs a fleet: its lock, its loop, and its end by a signal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trainer.job.launch.fleet import Fleet
from trainer.job.launch.fleet_metrics import FleetMetrics
from trainer.job.launch.fleet_store import FleetStore, StoredJob
from trainer.job.launch.job_processes import JobCommand, LocalProcesses
from trainer.run.progress.lock import run_lock
from transforms.errors import Busy

_LOOK_SECS = 0.5


def run_fleet(
    store: FleetStore,
    slots: int,
    command: JobCommand,
    *,
    until_idle: bool,
    is_held: Callable[[StoredJob], bool],
    on_change: Callable[[StoredJob], None],
    grace_secs: float = 60.0,
    metrics: FleetMetrics | None = None,
) -> tuple[StoredJob, ...]:
    """Run the jobs of a fleet until SIGTERM or SIGINT, at which they commit, leave and are queued; the second one kills them.

    Its jobs end with this process, however it ends; the next one queues them again. Returns the jobs at the end.

    Args:
        store: of the fleet.
        slots: that its jobs share.
        command: the command line of a job.
        until_idle: also end when no job runs and none can be started.
        is_held, on_change: of :class:`Fleet`.
        grace_secs: of :class:`LocalProcesses`.
        metrics: of this process.

    Raises :class:`Busy` if another process runs the fleet.
    """
    recorded = FleetMetrics(slots) if metrics is None else metrics

    def changed(stored: StoredJob) -> None:
        recorded.changed(stored)
        on_change(stored)

    with _only_runner(store), _ending() as signals:
        processes = LocalProcesses(store, command, grace_secs=grace_secs)
        fleet = Fleet(store, processes, slots, is_held=is_held, on_change=changed)
        try:
            fleet.recover()
            while not signals:
                with recorded.steps.timed():
                    jobs = fleet.step()
                recorded.saw(jobs)
                if until_idle and fleet.is_idle(jobs):
                    break
                time.sleep(_LOOK_SECS)
            while not fleet.leave() and len(signals) < 2:
                time.sleep(_LOOK_SECS)
        finally:
            processes.close()
        fleet.recover()
        return store.jobs()


@contextmanager
def _only_runner(store: FleetStore) -> Iterator[None]:
    try:
        with run_lock(store.folder / "runner"):
            yield
    except Busy as error:
        raise Busy("another process already runs this fleet", where=error.where, value=error.value,
                   next_step="headrace jobs submit adds a job to the fleet that runs") from None  # fmt: skip


@contextmanager
def _ending() -> Iterator[list[int]]:
    """The signals that ask this process to end, as they arrive."""
    found: list[int] = []

    def handle(number: int, frame: Any) -> None:
        found.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
