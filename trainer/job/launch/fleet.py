"""Runs a fleet: follows the scheduler's actions, and reports the ends of processes to it.

:class:`JobProcesses` is all that the fleet needs of a machine; a cluster manager does the same with suspended JobSets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from trainer.errors import IllegalEvent
from trainer.job.launch.fleet_store import FleetStore, StoredJob
from trainer.scheduling.fleet import (
    HAS_SLOTS,
    FleetEvent,
    FleetJob,
    FleetState,
    StartJob,
    end_event,
    move,
    plan,
)


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a job's process.

    Attributes:
        number: of the job.
        status: its exit status; negative: the signal that ended it.
        is_finished: whether the job has trained everything; None if its process did not report it.
        reason: the last line of its output.
    """

    number: int
    status: int
    is_finished: bool | None = None
    reason: str = ""


class JobProcesses(Protocol):
    """The processes of jobs: at most one a job."""

    def start(self, stored: StoredJob) -> None:
        """Start the process of a job."""
        ...

    def notice(self, number: int) -> None:
        """Give a preemption notice: the process commits and ends. Nothing if it has ended."""
        ...

    def stop(self, number: int) -> None:
        """Ask a process to commit and end, for good. Nothing if it has ended."""
        ...

    def ended(self) -> Iterable[ProcessEnd]:
        """The processes that ended since the last call."""
        ...


class Fleet:
    """The fleet of one machine. One process runs it.

    Args:
        store: of its jobs.
        processes: of its jobs.
        slots: that its jobs share.
        is_held: whether an error still holds the job, which is asked in HELD.
        on_change: called with each job whose state changed.
        clock: epoch seconds.
    """

    def __init__(
        self,
        store: FleetStore,
        processes: JobProcesses,
        slots: int,
        *,
        is_held: Callable[[StoredJob], bool] = lambda stored: True,
        on_change: Callable[[StoredJob], None] = lambda stored: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._processes, self.slots = store, processes, slots
        self._is_held, self._on_change, self._clock = is_held, on_change, clock
        self._stopped: set[int] = set()

    def recover(self) -> None:
        """Queue the jobs again whose processes ended with an earlier runner. Called before the first step."""
        for stored in self._store.jobs():
            if stored.job.state in HAS_SLOTS:
                self._move(stored.job.number, FleetEvent.LOSE, reason="its runner ended")

    def step(self) -> tuple[StoredJob, ...]:
        """Follow what has happened and what the scheduler decides; the jobs afterwards."""
        self._take_ends()
        for stored in self._store.jobs():
            job = stored.job
            if job.state is FleetState.STOPPING and job.number not in self._stopped:
                self._stopped.add(job.number)
                self._processes.stop(job.number)
            elif job.state is FleetState.HELD and not self._is_held(stored):
                self._move(job.number, FleetEvent.RELEASE)
        for action in plan([one.job for one in self._store.jobs()], self.slots, self._clock()):
            if isinstance(action, StartJob):
                started = self._move(action.number, FleetEvent.START, passed=action.passed)
                if started is not None:  # from here on, a killed runner finds it RUNNING without a process
                    self._stopped.discard(action.number)
                    self._processes.start(started)
            elif self._move(action.number, FleetEvent.NOTICE, reason=f"preempted for job {action.for_number}"):
                self._processes.notice(action.number)
        return self._store.jobs()

    def leave(self) -> bool:
        """Give every job a notice and start no other; whether all have left. Called until then."""
        self._take_ends()
        has_left = True
        for stored in self._store.jobs():
            if stored.job.state is FleetState.RUNNING and self._move(stored.job.number, FleetEvent.NOTICE, reason="the fleet ends"):  # fmt: skip
                self._processes.notice(stored.job.number)
            has_left = has_left and stored.job.state not in HAS_SLOTS
        return has_left

    def is_idle(self, jobs: Iterable[StoredJob]) -> bool:
        """Whether no job runs, or can run without a person: those that are held or too large cannot."""
        known = [one.job for one in jobs]
        return not any(
            one.state in HAS_SLOTS or (one.state is FleetState.QUEUED and one.slots <= self.slots) for one in known
        )

    def _take_ends(self) -> None:
        for end in self._processes.ended():

            def over(job: FleetJob, end: ProcessEnd = end) -> FleetJob:
                event = end_event(end.status, is_finished=end.is_finished, state=job.state)
                reason = "" if end.status == 0 else f"status {end.status}: {end.reason}"
                return move(job, event, now_secs=self._clock(), reason=reason)

            self._update(end.number, over)

    def _move(self, number: int, event: FleetEvent, *, reason: str = "", passed: tuple[int, ...] = ()) -> StoredJob | None:  # fmt: skip
        """The job after an event; None if a person changed the job before it."""
        return self._update(number, lambda job: move(job, event, now_secs=self._clock(), reason=reason, passed=passed))

    def _update(self, number: int, change: Callable[[FleetJob], FleetJob]) -> StoredJob | None:
        with suppress(IllegalEvent):
            stored = self._store.update(number, change)
            self._on_change(stored)
            return stored
        return None
