"""What a worker does next, as a pure function. The loops that carry it out: :mod:`pipelines.worker.worker`, and the simulator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What the next step depends on.

    ``leased``: tasks leased and not yet run. ``queue_was_empty``: the last lease gave nothing, and nothing was done
    since. ``unfinished``: tasks, of any worker, that are leased, or queued and due soon. ``stop_requested``: someone wants it to end.
    """

    leased: int
    queue_was_empty: bool
    unfinished: int
    until_idle: bool
    stop_requested: bool


@dataclass(frozen=True, slots=True)
class Lease:
    """Ask the queue for tasks."""


@dataclass(frozen=True, slots=True)
class Run:
    """Compute the tasks in committer."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait, then ask the queue again."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End, and why."""

    why: str


Instruction = Lease | Run | Sleep | Stop


def heartbeat_secs(lease_secs: float) -> float:
    """How often a worker beats: two beats may fail before a lease runs out."""
    return lease_secs / 3


def decide(state: WorkerState) -> Instruction:
    """What a worker does next.

    "Until idle" waits for the tasks of other workers too: one that was killed leaves them leased until its lease runs
    out, and then they are this worker's.
    """
    if state.leased:
        return Run()
    if state.stop_requested:
        return Stop("asked to")
    if not state.queue_was_empty:
        return Lease()
    if state.until_idle and not state.unfinished:
        return Stop("nothing is left to do")
    return Sleep()
