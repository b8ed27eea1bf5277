from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.errors import IllegalTransition
from warehouse.scheduling.task_states import (
    MEMO_OF_TASK,
    MOST_BACKOFF_SECS,
    TRANSITIONS,
    AttemptLimits,
    TaskChange,
    TaskEvent,
    TaskState,
    TaskStatus,
    apply_change,
    commit_change,
    drop_change,
    expire_change,
    failure_change,
    heartbeat_change,
    holds,
    is_abandoned,
    is_given_up,
    is_leasable,
    lease_change,
    next_state,
    quarantine_change,
    release_change,
    requeue_change,
    sources,
    target,
    untried_change,
)

LIMITS = AttemptLimits(max_attempts=3, max_losses=10)


@pytest.mark.parametrize("state", list(TaskState))
@pytest.mark.parametrize("event", list(TaskEvent))
def test_exactly_the_legal_transitions_happen(state: TaskState, event: TaskEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
        assert state in sources(event)
        return
    assert state not in sources(event)
    with pytest.raises(IllegalTransition) as caught:
        next_state(state, event)
    assert caught.value.value == event
    assert caught.value.where.endswith(state)


def test_the_table_itself() -> None:
    """Written out once more, so that an edit of the table is a decision."""
    assert {(str(state), str(event), str(to)) for (state, event), to in TRANSITIONS.items()} == {
        ("QUEUED", "lease", "LEASED"),
        ("LEASED", "lease", "LEASED"),
        ("LEASED", "heartbeat", "LEASED"),
        ("LEASED", "commit", "DONE"),
        ("LEASED", "retry", "QUEUED"),
        ("LEASED", "release", "QUEUED"),
        ("LEASED", "expire", "QUEUED"),
        ("LEASED", "quarantine", "FAILED"),
        ("DONE", "requeue", "QUEUED"),
        ("FAILED", "requeue", "QUEUED"),
        ("DROPPED", "requeue", "QUEUED"),
        ("QUEUED", "requeue", "QUEUED"),
        ("QUEUED", "drop", "DROPPED"),
        ("LEASED", "drop", "DROPPED"),
        ("FAILED", "drop", "DROPPED"),
    }
    assert {str(task): str(memo) for task, memo in MEMO_OF_TASK.items()} == {
        "QUEUED": "PENDING", "LEASED": "PENDING", "DONE": "READY", "FAILED": "FAILED", "DROPPED": "DROPPED"
    }  # fmt: skip


def test_every_event_has_one_target() -> None:
    assert {event: target(event) for event in TaskEvent}[TaskEvent.COMMIT] is TaskState.DONE


def test_a_life() -> None:
    status = apply_change(TaskStatus(), lease_change(100.0, 60.0, expired=False), "a")
    assert status == TaskStatus(TaskState.LEASED, fence=1, attempts=1, lease="a", lease_until=160.0)
    assert apply_change(status, heartbeat_change(150.0, 60.0)).lease_until == 210.0
    assert apply_change(status, release_change()) == TaskStatus(fence=1, lease="a")
    taken = apply_change(status, lease_change(170.0, 60.0, expired=True), "b")
    assert (taken.fence, taken.attempts, taken.losses, taken.lease) == (2, 2, 1, "b")
    failed = apply_change(taken, failure_change(2, 1, LIMITS, 180.0, 4.0, 0.5))
    assert (failed.state, failed.not_before, failed.lease_until) == (TaskState.QUEUED, 183.0, None)
    kept = apply_change(failed, quarantine_change()) if failed.state is TaskState.LEASED else failed
    again = apply_change(kept, lease_change(190.0, 60.0, expired=False), "c")
    assert apply_change(again, commit_change()).state is TaskState.DONE
    asked = apply_change(apply_change(again, commit_change()), requeue_change())
    assert (asked.attempts, asked.losses, asked.not_before, asked.fence) == (0, 0, 0.0, 3)


def test_what_is_dropped_waits_for_nothing_but_a_requeue() -> None:
    leased = apply_change(TaskStatus(attempts=1, losses=1), lease_change(0.0, 60.0, expired=False), "a")
    dropped = apply_change(leased, drop_change())
    assert (dropped.state, dropped.fence, dropped.lease_until) == (TaskState.DROPPED, 1, None)
    assert not holds(dropped, 1, "a"), "whoever had it commits nothing"
    assert not is_leasable(dropped, 1e12)
    assert {event for event in TaskEvent if (TaskState.DROPPED, event) in TRANSITIONS} == {TaskEvent.REQUEUE}
    again = apply_change(dropped, requeue_change())
    assert (again.state, again.attempts, again.losses) == (TaskState.QUEUED, 0, 0)
    assert apply_change(again, lease_change(0.0, 60.0, expired=False), "b").fence == 2, (
        "an old commit finds another fence"
    )


def test_a_lost_lease_expires_unless_a_worker_will_take_the_task_over() -> None:
    leased = apply_change(TaskStatus(), lease_change(0.0, 60.0, expired=False), "a")
    assert is_abandoned(leased, 61.0, 60.0, is_wanted=False)
    assert not is_abandoned(leased, 61.0, 60.0, is_wanted=True)
    assert not is_abandoned(leased, 60.0, 60.0, is_wanted=False), "its worker may still beat"
    assert is_abandoned(leased, -600.0, 60.0, is_wanted=False), "the clock was set back: the lease is void"
    expired = apply_change(leased, expire_change())
    assert expired == TaskStatus(TaskState.QUEUED, fence=1, attempts=1, losses=1, lease="a")
    assert not holds(expired, 1, "a"), "its worker commits nothing"
    assert not is_abandoned(expired, 1e12, 60.0, is_wanted=False)
    assert apply_change(expired, lease_change(99.0, 60.0, expired=False), "b").fence == 2


def test_asking_again_ends_a_backoff() -> None:
    waiting = TaskStatus(attempts=2, not_before=500.0)
    assert apply_change(waiting, requeue_change()) == TaskStatus()


def test_only_the_holder_of_the_fence_holds() -> None:
    status = apply_change(TaskStatus(), lease_change(0.0, 60.0, expired=False), "a")
    assert holds(status, 1, "a")
    assert not holds(status, 1, "b"), "another lease"
    assert not holds(status, 0, "a"), "another fence"
    assert not holds(apply_change(status, commit_change()), 1, "a"), "done is done"
    assert not holds(apply_change(status, lease_change(99.0, 60.0, expired=True), "b"), 1, "a")


def test_failed_attempts_are_used_up_and_losses_are_not_among_them() -> None:
    def event(attempt: int, losses: int = 0) -> TaskEvent:
        return failure_change(attempt, losses, LIMITS, 0.0, 1.0, 0.0).event

    assert [event(attempt) for attempt in (1, 2, 3, 4)] == [
        TaskEvent.RETRY, TaskEvent.RETRY, TaskEvent.QUARANTINE, TaskEvent.QUARANTINE
    ]  # fmt: skip
    assert event(7, losses=5) is TaskEvent.RETRY
    assert event(8, losses=5) is TaskEvent.QUARANTINE


def test_attempts_in_which_nothing_was_tried_are_more_and_further_apart() -> None:
    def change(attempt: int, losses: int = 0) -> TaskChange:
        return untried_change(attempt, losses, LIMITS, 1000.0, 60.0, 0.5)

    waits = [change(attempt).not_before for attempt in range(1, 6)]
    assert waits == [1045.0, 1090.0, 1180.0, 1360.0, 1675.0]
    assert change(6).event is TaskEvent.QUARANTINE
    assert change(6, losses=1).event is TaskEvent.RETRY


def wait_secs(failed: int, base_secs: float, draw: float) -> float:
    """The wait after so many failed attempts of a task that has any number of them."""
    limits = AttemptLimits(max_attempts=10**9, max_losses=1)
    not_before = failure_change(failed, 0, limits, 0.0, base_secs, draw).not_before
    assert not_before is not None
    return not_before


def test_backoff_doubles_up_to_an_hour() -> None:
    assert [wait_secs(failed, 2.0, 0.0) for failed in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 8.0]
    assert [wait_secs(failed, 2.0, 0.5) for failed in (1, 2)] == [1.5, 3.0]
    assert wait_secs(9, 0, 0.9) == 0


@given(st.integers(1, 10**6), st.floats(0, 1e6), st.floats(0, 1, exclude_max=True))
def test_the_wait_lies_between_half_and_all(failed: int, base_secs: float, draw: float) -> None:
    whole = min(base_secs * 2.0 ** min(failed - 1, 60), MOST_BACKOFF_SECS)
    assert whole / 2 <= wait_secs(failed, base_secs, draw) <= whole


def test_leasable_states() -> None:
    assert is_leasable(TaskStatus(not_before=10), 10)
    assert not is_leasable(TaskStatus(not_before=10.5), 10)
    assert is_leasable(TaskStatus(TaskState.LEASED, lease_until=9.5), 10)
    assert not is_leasable(TaskStatus(TaskState.LEASED, lease_until=10), 10)
    assert not is_leasable(TaskStatus(TaskState.DONE, lease_until=0), 10)
    assert not is_leasable(TaskStatus(TaskState.FAILED, lease_until=0), 10)


def test_a_clock_that_was_set_back_leaves_nothing_stuck() -> None:
    assert not is_leasable(TaskStatus(TaskState.LEASED, lease_until=600), 0, lease_secs=60)
    assert is_leasable(TaskStatus(TaskState.LEASED, lease_until=601), 0, lease_secs=60)
    assert not is_leasable(TaskStatus(not_before=MOST_BACKOFF_SECS), 0)
    assert is_leasable(TaskStatus(not_before=MOST_BACKOFF_SECS + 1), 0)


def test_a_task_with_too_many_losses_is_given_up() -> None:
    lost = TaskStatus(TaskState.LEASED, losses=9, lease_until=1.0)
    assert is_given_up(lost, 2.0, LIMITS)
    assert not is_given_up(lost, 0.5, LIMITS), "its worker may live"
    assert not is_given_up(TaskStatus(TaskState.LEASED, losses=8, lease_until=1.0), 2.0, LIMITS)
    assert not is_given_up(TaskStatus(TaskState.QUEUED, losses=99), 2.0, LIMITS)
