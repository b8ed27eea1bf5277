"""The life of a task, and of the memo it computes, as data. Pure: the clock, the counts and the draws are arguments.

    QUEUED ──lease──▶ LEASED ──commit──▶ DONE
      ▲ ▲               │ │ ╰──quarantine──▶ FAILED
      │ ╰──retry,release╯ ╰──heartbeat, or lease (expired: another worker takes over)──▶ LEASED
      │    expire (it ran out, and no live model waits for the task)
      ╰──── requeue (evicted, damaged, asked for) ◀── DONE, FAILED, DROPPED, and QUEUED: at once
    QUEUED, LEASED, FAILED ──drop──▶ DROPPED: nothing but requeue brings it back

Every lease raises the task's *fence*; only the holder of the current fence may beat, commit, release or fail it.

What an event does is a :class:`TaskChange`, the same for every task it happens to: the queue in the catalog writes it to many
rows at once, the simulator (:mod:`tests.simulation`) applies it to values one by one. Neither decides anything itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from warehouse.errors import IllegalTransition
from warehouse.scheduling.backoff import Backoff


class TaskState(StrEnum):
    """Where a task stands in its client's queue."""

    QUEUED = "QUEUED"
    LEASED = "LEASED"
    DONE = "DONE"
    FAILED = "FAILED"
    DROPPED = "DROPPED"


class MemoState(StrEnum):
    """Where a memo stands. EVICTED memos keep a row that says when and why."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    READY = "READY"
    FAILED = "FAILED"
    DROPPED = "DROPPED"
    EVICTED = "EVICTED"


class TaskEvent(StrEnum):
    """What can happen to a task."""

    LEASE = "lease"
    HEARTBEAT = "heartbeat"
    COMMIT = "commit"
    RETRY = "retry"
    RELEASE = "release"
    EXPIRE = "expire"
    QUARANTINE = "quarantine"
    REQUEUE = "requeue"
    DROP = "drop"


TRANSITIONS: dict[tuple[TaskState, TaskEvent], TaskState] = {
    (TaskState.QUEUED, TaskEvent.LEASE): TaskState.LEASED,
    (TaskState.LEASED, TaskEvent.LEASE): TaskState.LEASED,
    (TaskState.LEASED, TaskEvent.HEARTBEAT): TaskState.LEASED,
    (TaskState.LEASED, TaskEvent.COMMIT): TaskState.DONE,
    (TaskState.LEASED, TaskEvent.RETRY): TaskState.QUEUED,
    (TaskState.LEASED, TaskEvent.RELEASE): TaskState.QUEUED,
    (TaskState.LEASED, TaskEvent.EXPIRE): TaskState.QUEUED,
    (TaskState.LEASED, TaskEvent.QUARANTINE): TaskState.FAILED,
    (TaskState.DONE, TaskEvent.REQUEUE): TaskState.QUEUED,
    (TaskState.FAILED, TaskEvent.REQUEUE): TaskState.QUEUED,
    (TaskState.DROPPED, TaskEvent.REQUEUE): TaskState.QUEUED,
    (TaskState.QUEUED, TaskEvent.REQUEUE): TaskState.QUEUED,
    (TaskState.QUEUED, TaskEvent.DROP): TaskState.DROPPED,
    (TaskState.LEASED, TaskEvent.DROP): TaskState.DROPPED,
    (TaskState.FAILED, TaskEvent.DROP): TaskState.DROPPED,
}

#: The state of a memo whose task is in a state.
MEMO_OF_TASK: dict[TaskState, MemoState] = {
    TaskState.QUEUED: MemoState.PENDING,
    TaskState.LEASED: MemoState.RUNNING,
    TaskState.DONE: MemoState.READY,
    TaskState.FAILED: MemoState.FAILED,
    TaskState.DROPPED: MemoState.DROPPED,
}

#: The longest wait before another attempt. One that would be longer was set before the clock was set back.
MOST_BACKOFF_SECS = 3600.0
#: The longest wait after an attempt in which nothing was tried: whoever mends the machine need not wait an hour.
MOST_UNTRIED_BACKOFF_SECS = 900.0
#: How many times its length a lease may seem to last.
STUCK_LEASES = 10.0


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """All that the life of a task depends on. ``attempts``: leases that were not given back, ``losses`` of them ran out.

    ``not_before`` and ``lease_until`` are seconds since the epoch; ``lease`` is the name of the last lease.
    """

    state: TaskState = TaskState.QUEUED
    fence: int = 0
    attempts: int = 0
    losses: int = 0
    not_before: float = 0.0
    lease: str | None = None
    lease_until: float | None = None


@dataclass(frozen=True, slots=True)
class TaskChange:
    """What an event does to each task it happens to: the counts are added, ``not_before`` None leaves it as it was.

    ``reset_counts``: the counts of attempts and losses begin again instead, and it waits from now on.
    """

    event: TaskEvent
    fences: int = 0
    attempts: int = 0
    losses: int = 0
    lease_until: float | None = None
    not_before: float | None = None
    reset_counts: bool = False

    @property
    def state(self) -> TaskState:
        """The state that it leads to."""
        return target(self.event)


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """``max_attempts`` failed attempts, or ``max_losses`` lost workers, and a task is quarantined.

    A lost worker is seldom the task's doing (a preempted machine, a restart), hence a limit of its own; and so is an attempt that
    failed before anything was tried, of which there may be ``max_untried``.
    """

    max_attempts: int = 3
    max_losses: int = 10
    max_untried: int = 6


#: What the warehouse goes by unless it is told otherwise.
DEFAULT_LIMITS = AttemptLimits()


def next_state(state: TaskState, event: TaskEvent) -> TaskState:
    """The state that ``event`` leads to. Raises :class:`IllegalTransition` listing what is possible."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        possible = ", ".join(event for held, event in TRANSITIONS if held is state)
        raise IllegalTransition("a task cannot do this now", where=f"task state {state}", value=str(event),
                                allowed=possible or "(nothing)") from None  # fmt: skip


def sources(event: TaskEvent) -> tuple[TaskState, ...]:
    """The states in which ``event`` may happen: what a compare-and-swap compares with."""
    return tuple(state for state, possible in TRANSITIONS if possible is event)


def target(event: TaskEvent) -> TaskState:
    """The one state that ``event`` leads to, wherever it starts."""
    (state,) = {next_state(source, event) for source in sources(event)}
    return state


def lease_change(now: float, lease_secs: float, *, expired: bool) -> TaskChange:
    """A worker takes the task; ``expired``: from one whose lease ran out."""
    return TaskChange(TaskEvent.LEASE, fences=1, attempts=1, losses=int(expired), lease_until=now + lease_secs)


def heartbeat_change(now: float, lease_secs: float) -> TaskChange:
    """Its worker is alive."""
    return TaskChange(TaskEvent.HEARTBEAT, lease_until=now + lease_secs)


def commit_change() -> TaskChange:
    """Its memo is in place."""
    return TaskChange(TaskEvent.COMMIT)


def release_change() -> TaskChange:
    """Its worker gives it back untried: the attempt does not count."""
    return TaskChange(TaskEvent.RELEASE, attempts=-1)


def expire_change() -> TaskChange:
    """Its lease ran out and no worker will take it over: the attempt counts as lost, as if one did."""
    return TaskChange(TaskEvent.EXPIRE, losses=1)


def failure_change(
    attempt: int, losses: int, limits: AttemptLimits, now: float, base_secs: float, draw: float
) -> TaskChange:
    """Attempt number ``attempt`` (from 1), of which ``losses`` were lost, failed: another one later, or quarantine."""
    failed = attempt - losses
    if failed >= limits.max_attempts:
        return quarantine_change()
    return TaskChange(TaskEvent.RETRY, not_before=now + _wait_secs(failed, base_secs, MOST_BACKOFF_SECS, draw))


def untried_change(
    attempt: int, losses: int, limits: AttemptLimits, now: float, base_secs: float, draw: float
) -> TaskChange:
    """:func:`failure_change` for an attempt in which nothing was tried: it is seldom the task's doing, and takes time to mend.

    No wait is longer than :data:`MOST_UNTRIED_BACKOFF_SECS`.
    """
    failed = attempt - losses
    if failed >= limits.max_untried:
        return quarantine_change()
    wait_secs = _wait_secs(failed, base_secs, MOST_UNTRIED_BACKOFF_SECS, draw)
    return TaskChange(TaskEvent.RETRY, not_before=now + wait_secs)


def quarantine_change() -> TaskChange:
    """It is not tried again until somebody asks for it."""
    return TaskChange(TaskEvent.QUARANTINE)


def requeue_change() -> TaskChange:
    """It is wanted again, with all its attempts, at once."""
    return TaskChange(TaskEvent.REQUEUE, not_before=0.0, reset_counts=True)


def drop_change() -> TaskChange:
    """Nobody wants it computed any more. Whoever holds it commits nothing; its fence stays, so that it never will."""
    return TaskChange(TaskEvent.DROP)


def apply_change(status: TaskStatus, change: TaskChange, lease: str | None = None) -> TaskStatus:
    """The task after the change; ``lease`` names a new lease. Raises :class:`IllegalTransition` where it cannot happen."""
    return replace(
        status,
        state=next_state(status.state, change.event),
        fence=status.fence + change.fences,
        attempts=0 if change.reset_counts else status.attempts + change.attempts,
        losses=0 if change.reset_counts else status.losses + change.losses,
        not_before=status.not_before if change.not_before is None else change.not_before,
        lease=lease if change.event is TaskEvent.LEASE else status.lease,
        lease_until=change.lease_until,
    )


def holds(status: TaskStatus, fence: int, lease: str) -> bool:
    """Whether the holder of ``fence`` under ``lease`` still owns the task: what a beat, commit, release or failure needs."""
    return status.state is TaskState.LEASED and (status.fence, status.lease) == (fence, lease)


def _wait_secs(failed: int, base_secs: float, most_secs: float, draw: float) -> float:
    """The wait after failed attempt number ``failed``; jitter parts tasks that failed together."""
    return Backoff(min(base_secs, most_secs), most_secs).wait_secs(failed, draw)


def is_leasable(status: TaskStatus, now: float, lease_secs: float = math.inf) -> bool:
    """Whether a worker may take the task at ``now``: it is queued and due, or its lease ran out."""
    if status.state is TaskState.QUEUED:
        return status.not_before <= now or status.not_before > now + MOST_BACKOFF_SECS
    return is_lost(status, now, lease_secs)


def is_lost(status: TaskStatus, now: float, lease_secs: float = math.inf) -> bool:
    """Whether its worker let the lease run out.

    A lease that ends :data:`STUCK_LEASES` times ``lease_secs`` from now was given before the clock was set back: it is void.
    """
    if status.state is not TaskState.LEASED or status.lease_until is None:
        return False
    return not now <= status.lease_until <= now + STUCK_LEASES * lease_secs


def is_given_up(status: TaskStatus, now: float, limits: AttemptLimits, lease_secs: float = math.inf) -> bool:
    """Whether too many workers were lost over it for another one to try."""
    return is_lost(status, now, lease_secs) and status.losses + 1 >= limits.max_losses


def is_abandoned(status: TaskStatus, now: float, lease_secs: float = math.inf, *, is_wanted: bool) -> bool:
    """Whether the lease ran out of a task that no live model waits for, so that no worker takes it over."""
    return not is_wanted and is_lost(status, now, lease_secs)
