"""The life of a task, and of the memo it computes, as data. Pure: the clock and the counts are arguments.

    QUEUED ──lease──▶ LEASED ──commit──▶ DONE
      ▲ ▲               │ │ ╰──quarantine──▶ FAILED
      │ ╰──retry,release╯ ╰──lease (expired: another worker takes over)──▶ LEASED
      ╰──────────────── requeue (evicted, damaged, asked for) ◀── DONE, FAILED

Every lease raises the task's *fence*; only the holder of the current fence may commit or fail it.
"""

from __future__ import annotations

from enum import StrEnum

from warehouse.errors import IllegalTransition


class TaskState(StrEnum):
    """Where a task stands in its client's queue."""

    QUEUED = "QUEUED"
    LEASED = "LEASED"
    DONE = "DONE"
    FAILED = "FAILED"


class MemoState(StrEnum):
    """Where a memo stands. EVICTED memos keep a row that says when and why."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    READY = "READY"
    FAILED = "FAILED"
    EVICTED = "EVICTED"


class TaskEvent(StrEnum):
    """What can happen to a task."""

    LEASE = "lease"
    COMMIT = "commit"
    RETRY = "retry"
    RELEASE = "release"
    QUARANTINE = "quarantine"
    REQUEUE = "requeue"


TRANSITIONS: dict[tuple[TaskState, TaskEvent], TaskState] = {
    (TaskState.QUEUED, TaskEvent.LEASE): TaskState.LEASED,
    (TaskState.LEASED, TaskEvent.LEASE): TaskState.LEASED,
    (TaskState.LEASED, TaskEvent.COMMIT): TaskState.DONE,
    (TaskState.LEASED, TaskEvent.RETRY): TaskState.QUEUED,
    (TaskState.LEASED, TaskEvent.RELEASE): TaskState.QUEUED,
    (TaskState.LEASED, TaskEvent.QUARANTINE): TaskState.FAILED,
    (TaskState.DONE, TaskEvent.REQUEUE): TaskState.QUEUED,
    (TaskState.FAILED, TaskEvent.REQUEUE): TaskState.QUEUED,
}

#: The state of a memo whose task is in a state.
MEMO_OF_TASK: dict[TaskState, MemoState] = {
    TaskState.QUEUED: MemoState.PENDING,
    TaskState.LEASED: MemoState.RUNNING,
    TaskState.DONE: MemoState.READY,
    TaskState.FAILED: MemoState.FAILED,
}


def after(state: TaskState, event: TaskEvent) -> TaskState:
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
    (state,) = {after(source, event) for source in sources(event)}
    return state


def on_failure(attempts: int, max_attempts: int) -> TaskEvent:
    """What a failed attempt means: another one, or quarantine once ``attempts`` leases are used up."""
    return TaskEvent.RETRY if attempts < max_attempts else TaskEvent.QUARANTINE


def backoff_secs(attempts: int, base_secs: float) -> float:
    """How long to wait before the next attempt: ``base_secs``, doubled for every attempt after the first."""
    return float(base_secs * 2 ** max(attempts - 1, 0))


def is_leasable(state: TaskState, now: float, not_before: float, lease_until: float | None) -> bool:
    """Whether a worker may take the task at ``now``: it is queued and due, or its lease ran out."""
    if state is TaskState.QUEUED:
        return not_before <= now
    return state is TaskState.LEASED and lease_until is not None and lease_until < now
