"""The next step of a worker, as a pure function of its state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The state that determines the next step.

    Attributes:
        leased: Leased tasks that have not run.
        queue_was_empty: The last lease returned no task, and no job ran since.
        unfinished: Tasks of all workers that are leased, or queued and due soon.
        until_idle: Whether the worker stops when no task is left.
        stop_requested: Whether a stop was requested.
    """

    leased: int
    queue_was_empty: bool
    unfinished: int
    until_idle: bool
    stop_requested: bool


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease tasks."""


@dataclass(frozen=True, slots=True)
class Run:
    """Compute the leased tasks."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait before the next lease."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End, for the reason ``why``."""

    why: str


Instruction = Lease | Run | Sleep | Stop


def heartbeat_secs(lease_secs: float) -> float:
    """The period of heartbeats; two may fail before a lease expires."""
    return lease_secs / 3


def decide(state: WorkerState) -> Instruction:
    """The next step of a worker.

    "Until idle" also waits for the tasks of other workers: those of a killed worker can be leased when its leases expire.
    """
    if state.leased:
        return Run()
    if state.stop_requested:
        return Stop("stop requested")
    if not state.queue_was_empty:
        return Lease()
    if state.until_idle and not state.unfinished:
        return Stop("no task is left")
    return Sleep()
