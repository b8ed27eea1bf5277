"""State machine of tasks and of the memos that they compute. Pure.

    QUEUED ──lease──▶ LEASED ──commit──▶ DONE
      ▲ ▲               │ │ ╰──quarantine──▶ FAILED
      │ ╰──retry,release╯ ╰──heartbeat, or lease (expired: another worker takes over)──▶ LEASED
      │    expire (it ran out, and no live model waits for the task)
      ╰──── requeue (evicted, damaged, asked for) ◀── DONE, FAILED, DROPPED, and QUEUED: at once
    QUEUED, LEASED, FAILED ──drop──▶ DROPPED: nothing but requeue brings it back

Every lease increases the task's fencing token (``fence``); a heartbeat, commit, release or failure with an older one is rejected.

The effect of an event is a :class:`TaskChange`, the same for all tasks: the queue writes it to many rows at once, the
simulator (:mod:`tests.simulation`) applies it to single values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from warehouse.errors import IllegalTransition
from warehouse.scheduling.backoff import Backoff


class TaskState(StrEnum):
    """The state of a task in the queue."""

    QUEUED = "QUEUED"
    LEASED = "LEASED"
    DONE = "DONE"
    FAILED = "FAILED"
    DROPPED = "DROPPED"


class MemoState(StrEnum):
    """The state of a memo.

    RUNNING is that of a PENDING memo whose task is leased; it is not stored. An EVICTED memo keeps its row as a tombstone, with
    the time and the reason.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    READY = "READY"
    FAILED = "FAILED"
    DROPPED = "DROPPED"
    EVICTED = "EVICTED"


class TaskEvent(StrEnum):
    """An event of a task."""

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

#: The stored state of a memo whose task is in a state.
MEMO_OF_TASK: dict[TaskState, MemoState] = {
    TaskState.QUEUED: MemoState.PENDING,
    TaskState.LEASED: MemoState.PENDING,
    TaskState.DONE: MemoState.READY,
    TaskState.FAILED: MemoState.FAILED,
    TaskState.DROPPED: MemoState.DROPPED,
}

#: The stored states of memos whose tasks are not done.
UNREADY = (MemoState.PENDING, MemoState.FAILED, MemoState.DROPPED)

#: The longest wait before another attempt. A longer one is ignored: the clock was set back.
MOST_BACKOFF_SECS = 3600.0
#: The longest wait after an untried attempt: shorter, since the machine may be repaired by then.
MOST_UNTRIED_BACKOFF_SECS = 900.0
#: A lease that ends later than this multiple of its length is expired: the clock was set back.
STUCK_LEASES = 10.0


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of a task.

    Attributes:
        state: Its state.
        fence: The fencing token of its last lease.
        attempts: Leases that were not released.
        losses: Leases that expired.
        not_before: The moment from which it can be leased, in epoch seconds.
        lease: The name of its last lease.
        lease_until: When that expires, in epoch seconds.
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
    """The effect of an event on a task.

    Attributes:
        event: The event.
        fences: Added to the fencing token.
        attempts: Added to the attempts.
        losses: Added to the losses.
        lease_until: The new end of the lease.
        not_before: The new earliest lease; None leaves it unchanged.
        reset_counts: Attempts and losses become 0, and the waiting time starts now.
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
        """The new state."""
        return target(self.event)


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """The limits after which a task is quarantined.

    A lost worker (preemption, restart) and an untried attempt are rarely caused by the task, so their limits are higher.

    Attributes:
        max_attempts: Failed attempts.
        max_losses: Lost workers.
        max_untried: Failed attempts that did not run the component.
    """

    max_attempts: int = 3
    max_losses: int = 10
    max_untried: int = 6


#: The default limits.
DEFAULT_LIMITS = AttemptLimits()


def next_state(state: TaskState, event: TaskEvent) -> TaskState:
    """The state after ``event``. Raises :class:`IllegalTransition` with the possible events."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        possible = ", ".join(event for held, event in TRANSITIONS if held is state)
        raise IllegalTransition("event of the task must be possible in its state", where=f"task state {state}", value=str(event),
                                allowed=possible or "(nothing)") from None  # fmt: skip


def sources(event: TaskEvent) -> tuple[TaskState, ...]:
    """The states in which ``event`` is possible, for a compare-and-swap."""
    return tuple(state for state, possible in TRANSITIONS if possible is event)


def target(event: TaskEvent) -> TaskState:
    """The state after ``event``, which does not depend on the state before."""
    (state,) = {next_state(source, event) for source in sources(event)}
    return state


def lease_change(now: float, lease_secs: float, *, expired: bool) -> TaskChange:
    """A worker leases the task; ``expired``: after the lease of another worker expired."""
    return TaskChange(TaskEvent.LEASE, fences=1, attempts=1, losses=int(expired), lease_until=now + lease_secs)


def heartbeat_change(now: float, lease_secs: float) -> TaskChange:
    """The worker renews its lease."""
    return TaskChange(TaskEvent.HEARTBEAT, lease_until=now + lease_secs)


def commit_change() -> TaskChange:
    """The worker commits the memo."""
    return TaskChange(TaskEvent.COMMIT)


def release_change() -> TaskChange:
    """The worker releases the lease; the attempt does not count."""
    return TaskChange(TaskEvent.RELEASE, attempts=-1)


def expire_change() -> TaskChange:
    """The lease expired and no worker takes the task over: the attempt counts as a loss."""
    return TaskChange(TaskEvent.EXPIRE, losses=1)


def failure_change(
    attempt: int, losses: int, limits: AttemptLimits, now: float, base_secs: float, draw: float
) -> TaskChange:
    """Attempt number ``attempt`` (from 1) failed, after ``losses`` lost ones: a retry, or quarantine."""
    failed = attempt - losses
    if failed >= limits.max_attempts:
        return quarantine_change()
    return TaskChange(TaskEvent.RETRY, not_before=now + _wait_secs(failed, base_secs, MOST_BACKOFF_SECS, draw))


def untried_change(
    attempt: int, losses: int, limits: AttemptLimits, now: float, base_secs: float, draw: float
) -> TaskChange:
    """:func:`failure_change` of an untried attempt; waits are at most :data:`MOST_UNTRIED_BACKOFF_SECS`."""
    failed = attempt - losses
    if failed >= limits.max_untried:
        return quarantine_change()
    wait_secs = _wait_secs(failed, base_secs, MOST_UNTRIED_BACKOFF_SECS, draw)
    return TaskChange(TaskEvent.RETRY, not_before=now + wait_secs)


def quarantine_change() -> TaskChange:
    """The task is quarantined: there is no attempt until it is queued again."""
    return TaskChange(TaskEvent.QUARANTINE)


def requeue_change() -> TaskChange:
    """The task is queued again, with all its attempts, without a wait."""
    return TaskChange(TaskEvent.REQUEUE, not_before=0.0, reset_counts=True)


def drop_change() -> TaskChange:
    """The task is dropped. A worker that holds it can commit nothing."""
    return TaskChange(TaskEvent.DROP)


def apply_change(status: TaskStatus, change: TaskChange, lease: str | None = None) -> TaskStatus:
    """The status after the change; ``lease`` is the name of a new lease. Raises :class:`IllegalTransition`."""
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
    """Whether ``fence`` and ``lease`` are current, as a heartbeat, commit, release or failure needs."""
    return status.state is TaskState.LEASED and (status.fence, status.lease) == (fence, lease)


def _wait_secs(failed: int, base_secs: float, most_secs: float, draw: float) -> float:
    """The wait after failed attempt number ``failed``; jitter separates tasks that failed together."""
    return Backoff(min(base_secs, most_secs), most_secs).wait_secs(failed, draw)


def is_leasable(status: TaskStatus, now: float, lease_secs: float = math.inf) -> bool:
    """Whether the task can be leased at ``now``: it is queued and due, or its lease expired."""
    if status.state is TaskState.QUEUED:
        return status.not_before <= now or status.not_before > now + MOST_BACKOFF_SECS
    return is_lost(status, now, lease_secs)


def is_lost(status: TaskStatus, now: float, lease_secs: float = math.inf) -> bool:
    """Whether the lease expired.

    A lease that ends later than :data:`STUCK_LEASES` times ``lease_secs`` from now is from before the clock was set back:
    it counts as expired.
    """
    if status.state is not TaskState.LEASED or status.lease_until is None:
        return False
    return not now <= status.lease_until <= now + STUCK_LEASES * lease_secs


def is_given_up(status: TaskStatus, now: float, limits: AttemptLimits, lease_secs: float = math.inf) -> bool:
    """Whether the lease expired and the task reached its limit of losses."""
    return is_lost(status, now, lease_secs) and status.losses + 1 >= limits.max_losses


def is_abandoned(status: TaskStatus, now: float, lease_secs: float = math.inf, *, is_wanted: bool) -> bool:
    """Whether the lease expired and no live model waits for the task, so that no worker takes it over."""
    return not is_wanted and is_lost(status, now, lease_secs)
