from __future__ import annotations

import pytest

from trainer.errors import IllegalEvent
from trainer.scheduling.events import EVENT_TYPES
from trainer.scheduling.transitions import (
    ATTEMPT,
    DERIVED,
    FINAL,
    MEANING,
    TRANSITIONS,
    EventKind,
    JobState,
    check_move,
    targets,
)

#: Events that are impossible in a state: commands to a job that cannot follow them, and defects of the controller.
IMPOSSIBLE = {
    *((state, EventKind.RELEASED) for state in JobState if state is not JobState.HELD),
    *((state, EventKind.EPOCH_DUE) for state in JobState if state is not JobState.TRAINING),
    *((state, EventKind.RESUME) for state in JobState if state is not JobState.RESTARTING),
    *((state, EventKind.DEADLINE) for state in JobState if state not in ATTEMPT - {JobState.TRAINING}),
}

pairs = pytest.mark.parametrize(
    ("state", "kind"), [pytest.param(state, kind, id=f"{state}-{kind}") for state in JobState for kind in EventKind]
)


@pairs
def test_every_pair_is_decided(state: JobState, kind: EventKind) -> None:
    if (state, kind) in IMPOSSIBLE:
        assert (state, kind) not in TRANSITIONS
        with pytest.raises(IllegalEvent) as caught:
            targets(state, kind)
        assert caught.value.value == kind
        assert str(state) in caught.value.where
        return
    allowed = targets(state, kind)
    for after in JobState:
        if after in allowed:
            check_move(state, kind, after)
        else:
            with pytest.raises(IllegalEvent):
                check_move(state, kind, after)


def test_messages_of_roles_are_never_impossible() -> None:
    """What comes over the network may come at any time."""
    sent = {
        EventKind.JOINED, EventKind.HEARTBEAT, EventKind.LEFT, EventKind.FAILED, EventKind.POSITION, EventKind.DRAINED,
        EventKind.PART_WRITTEN, EventKind.COMMIT_FAILED, EventKind.PUBLISHED, EventKind.NOTICE, EventKind.DATA_CHANGED,
        EventKind.STOP_ASKED, EventKind.RECOVERED, EventKind.TICK, EventKind.PLAN_FAILED,
    }  # fmt: skip
    assert not {(state, kind) for state, kind in IMPOSSIBLE if kind in sent}


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_final_state_is_not_left(state: JobState) -> None:
    assert {after for kind in EventKind for after in TRANSITIONS.get((state, kind), ())} == {state}


def test_every_state_is_reached_and_each_live_one_is_left() -> None:
    assert {after for allowed in TRANSITIONS.values() for after in allowed} == set(JobState) == set(MEANING)
    for state in set(JobState) - FINAL:
        assert any(allowed - {state} for (held, _), allowed in TRANSITIONS.items() if held is state)


def test_every_kind_has_one_class() -> None:
    assert set(EVENT_TYPES) == set(EventKind)
    assert all(cls.kind is kind for kind, cls in EVENT_TYPES.items())
    assert set(EventKind) > DERIVED
