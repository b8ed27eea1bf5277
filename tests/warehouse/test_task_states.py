from __future__ import annotations

import pytest

from warehouse.errors import IllegalTransition
from warehouse.task_states import (
    MEMO_OF_TASK,
    TRANSITIONS,
    TaskEvent,
    TaskState,
    after,
    backoff_secs,
    is_leasable,
    on_failure,
    sources,
    target,
)


@pytest.mark.parametrize("state", list(TaskState))
@pytest.mark.parametrize("event", list(TaskEvent))
def test_exactly_the_legal_transitions_happen(state: TaskState, event: TaskEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert after(state, event) is TRANSITIONS[state, event]
        assert state in sources(event)
        return
    assert state not in sources(event)
    with pytest.raises(IllegalTransition) as caught:
        after(state, event)
    assert caught.value.value == event
    assert caught.value.where.endswith(state)


def test_the_table_itself() -> None:
    """Written out once more, so that an edit of the table is a decision."""
    assert {(str(state), str(event), str(to)) for (state, event), to in TRANSITIONS.items()} == {
        ("QUEUED", "lease", "LEASED"),
        ("LEASED", "lease", "LEASED"),
        ("LEASED", "commit", "DONE"),
        ("LEASED", "retry", "QUEUED"),
        ("LEASED", "release", "QUEUED"),
        ("LEASED", "quarantine", "FAILED"),
        ("DONE", "requeue", "QUEUED"),
        ("FAILED", "requeue", "QUEUED"),
    }
    assert {str(task): str(memo) for task, memo in MEMO_OF_TASK.items()} == {
        "QUEUED": "PENDING", "LEASED": "RUNNING", "DONE": "READY", "FAILED": "FAILED"
    }  # fmt: skip


def test_every_event_has_one_target() -> None:
    assert {event: target(event) for event in TaskEvent}[TaskEvent.COMMIT] is TaskState.DONE


def test_attempts_are_used_up() -> None:
    assert [on_failure(attempt, 3) for attempt in (1, 2, 3, 4)] == [
        TaskEvent.RETRY, TaskEvent.RETRY, TaskEvent.QUARANTINE, TaskEvent.QUARANTINE
    ]  # fmt: skip
    assert on_failure(1, 1) is TaskEvent.QUARANTINE


def test_backoff_doubles() -> None:
    assert [backoff_secs(attempt, 1.5) for attempt in (1, 2, 3, 4)] == [1.5, 3.0, 6.0, 12.0]
    assert backoff_secs(9, 0) == 0


def test_who_can_be_leased() -> None:
    assert is_leasable(TaskState.QUEUED, 10, 10, None)
    assert not is_leasable(TaskState.QUEUED, 10, 10.5, None)
    assert is_leasable(TaskState.LEASED, 10, 0, 9.5)
    assert not is_leasable(TaskState.LEASED, 10, 0, 10)
    assert not is_leasable(TaskState.DONE, 10, 0, 0)
    assert not is_leasable(TaskState.FAILED, 10, 0, 0)
