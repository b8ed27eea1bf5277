"""The scheduler of a fleet: its table, and laws of its plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import IllegalEvent
from trainer.scheduling.fleet import (
    ENDED,
    HAS_SLOTS,
    MEANING,
    MOST_FAILURES,
    ON_A_CLUSTER,
    TRANSITIONS,
    FleetEvent,
    FleetJob,
    FleetState,
    PreemptJob,
    StartJob,
    end_event,
    move,
    plan,
)

S, E = FleetState, FleetEvent


def job(number: int, slots: int = 1, priority: int = 0, state: FleetState = S.QUEUED, passed=()) -> FleetJob:
    return FleetJob(number, f"job-{number}", slots, priority, state, passed=tuple(passed))


def test_every_state_is_described_and_left_unless_it_is_an_end():
    assert set(MEANING) == set(ON_A_CLUSTER) == set(S)
    assert {state for state, _ in TRANSITIONS} == set(S) - ENDED
    assert {event for _, event in TRANSITIONS} == set(E)


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("event", E)
def test_only_events_of_the_table_move_a_job(state, event):
    one = job(1, state=state)
    if (state, event) in TRANSITIONS:
        assert move(one, event).state is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalEvent, match="must be possible in its state"):
            move(one, event)


def test_jobs_start_by_priority_then_age():
    jobs = [job(1), job(2, priority=5), job(3, priority=5), job(4)]
    assert plan(jobs, 3, 0.0) == (StartJob(2), StartJob(3), StartJob(1))


def test_a_held_job_frees_its_slots():
    assert plan([job(1, state=S.RUNNING), job(2)], 1, 0.0) == ()
    assert plan([job(1, state=S.HELD), job(2)], 1, 0.0) == (StartJob(2),)


def test_a_higher_priority_preempts_the_fewest_lowest_and_youngest_jobs():
    running = [job(k, slots=1, priority=k % 2, state=S.RUNNING) for k in (1, 2, 3, 4)]
    assert plan([*running, job(9, slots=1, priority=7)], 4, 0.0) == (PreemptJob(4, 9),)
    assert plan([*running, job(9, slots=3, priority=7)], 4, 0.0) == (
        PreemptJob(4, 9),
        PreemptJob(2, 9),
        PreemptJob(3, 9),
    )
    assert plan([*running, job(9, slots=3, priority=1)], 4, 0.0) == (), "two slots would not be enough"
    large = [job(1, slots=1, state=S.RUNNING), job(2, slots=3, priority=1, state=S.RUNNING)]
    assert plan([*large, job(9, slots=2, priority=7)], 4, 0.0) == (PreemptJob(2, 9),), "the other one is spared"


def test_slots_of_leaving_jobs_are_reserved():
    jobs = [job(1, slots=2, state=S.LEAVING), job(9, slots=2, priority=7), job(10), job(11)]
    assert plan(jobs, 3, 0.0) == (StartJob(10),)


def test_a_large_job_waits_for_no_backfilled_job():
    jobs = [job(1, slots=2, state=S.RUNNING), job(2, slots=3), job(3)]
    assert plan(jobs, 3, 0.0) == (StartJob(3, passed=(2,)),)
    jobs = [job(1, slots=2, state=S.DONE), job(2, slots=3), job(3, state=S.RUNNING, passed=[2])]
    assert plan(jobs, 3, 0.0) == (PreemptJob(3, 2),)
    released = [job(2, slots=3), job(3, state=S.RUNNING)]
    assert plan(released, 3, 0.0) == (), "it was started while the large job was held"


def test_a_job_that_is_too_large_delays_no_other():
    assert plan([job(1, slots=9, priority=9), job(2)], 3, 0.0) == (StartJob(2),)


def test_failures_that_may_pass_have_a_backoff_and_a_limit():
    one = job(1)
    for count in range(1, MOST_FAILURES + 1):
        one = move(move(one, E.START), E.RETRY, now_secs=1000.0, reason="status 6")
        assert (one.state, one.failures) == (S.QUEUED, count)
        assert plan([one], 1, 1000.0) == ()
        assert plan([one], 1, one.not_before_secs) == (StartJob(1),)
        assert plan([one], 1, -1e9) == (StartJob(1),), "the clock was set back"
    assert move(move(one, E.START), E.RETRY).state is S.FAILED
    left = move(move(one, E.START), E.LEAVE)
    assert left.failures == 0


@pytest.mark.parametrize(
    ("status", "is_finished", "state", "event"),
    [
        (0, True, S.RUNNING, E.FINISH),
        (0, False, S.RUNNING, E.LEAVE),
        (0, None, S.RUNNING, E.FINISH),
        (0, None, S.LEAVING, E.LEAVE),
        (0, True, S.LEAVING, E.FINISH),
        (7, None, S.RUNNING, E.HOLD),
        (5, None, S.RUNNING, E.RETRY),
        (6, None, S.RUNNING, E.RETRY),
        (-9, None, S.RUNNING, E.RETRY),
        (143, None, S.LEAVING, E.LEAVE),
        (-15, None, S.STOPPING, E.LEAVE),
        (1, None, S.RUNNING, E.FAIL),
        (2, None, S.RUNNING, E.FAIL),
        (70, None, S.RUNNING, E.FAIL),
    ],
)
def test_exit_statuses(status, is_finished, state, event):
    assert end_event(status, is_finished=is_finished, state=state) is event


SLOTS = st.integers(1, 6)


@st.composite
def fleets(draw):
    """A fleet after random submissions, ends and plans."""
    slots = draw(SLOTS)
    jobs: dict[int, FleetJob] = {}
    for number in range(1, draw(st.integers(2, 16))):
        jobs[number] = job(number, draw(SLOTS), draw(st.integers(0, 2)))
        act(jobs, slots)
        for one in draw(st.lists(st.sampled_from(sorted(jobs)), max_size=3, unique=True)):
            happen(jobs, one, draw(st.sampled_from([E.FINISH, E.LEAVE, E.HOLD, E.RELEASE, E.STOP, E.LOSE])))
    return jobs, slots


def act(jobs: dict[int, FleetJob], slots: int) -> int:
    actions = plan(jobs.values(), slots, 0.0)
    for one in actions:
        if isinstance(one, StartJob):
            jobs[one.number] = move(jobs[one.number], E.START, passed=one.passed)
        else:
            assert jobs[one.number].rank > jobs[one.for_number].rank, "only later jobs are preempted"
            jobs[one.number] = move(jobs[one.number], E.NOTICE)
    used = sum(one.slots for one in jobs.values() if one.state in HAS_SLOTS)
    assert used <= slots
    return len(actions)


def happen(jobs: dict[int, FleetJob], number: int, event: FleetEvent) -> None:
    if (jobs[number].state, event) in TRANSITIONS:
        jobs[number] = move(jobs[number], event)


def settle(jobs: dict[int, FleetJob], slots: int) -> None:
    """Plan until nothing is left to do; jobs with a notice leave."""
    for _ in range(200):
        count = act(jobs, slots)
        leaving = [one for one in jobs.values() if one.state in (S.LEAVING, S.STOPPING)]
        if not count and not leaving:
            return
        for one in leaving:
            jobs[one.number] = move(one, E.LEAVE)
    raise AssertionError("jobs preempt each other for ever")


@settings(max_examples=scaled(100))
@given(fleets())
def test_a_plan_is_followed_once(fleet):
    jobs, slots = fleet
    act(jobs, slots)
    assert plan(jobs.values(), slots, 0.0) == ()


@settings(max_examples=scaled(100))
@given(fleets())
def test_a_preemption_lets_its_job_start(fleet):
    jobs, slots = fleet
    wanted = {one.for_number for one in plan(jobs.values(), slots, 0.0) if isinstance(one, PreemptJob)}
    act(jobs, slots)
    for one in [one for one in jobs.values() if one.state in (S.LEAVING, S.STOPPING)]:
        jobs[one.number] = move(one, E.LEAVE)
    act(jobs, slots)
    assert {jobs[number].state for number in wanted} <= {S.RUNNING}


@settings(max_examples=scaled(100))
@given(fleets())
def test_no_slot_is_idle_while_a_job_fits_and_none_runs_before_a_higher_priority(fleet):
    jobs, slots = fleet
    settle(jobs, slots)
    free = slots - sum(one.slots for one in jobs.values() if one.state in HAS_SLOTS)
    queued = [one for one in jobs.values() if one.state is S.QUEUED and one.slots <= slots]
    assert all(one.slots > free for one in queued)
    for one in queued:
        after = [two for two in jobs.values() if two.state is S.RUNNING and two.priority < one.priority]
        assert free + sum(two.slots for two in after) < one.slots


@settings(max_examples=scaled(100))
@given(fleets(), st.lists(SLOTS, min_size=30, max_size=30))
def test_a_large_job_is_not_starved_by_small_ones(fleet, sizes):
    """However many jobs follow, it starts when the jobs have ended that ran, or were before it, when it came."""
    jobs, slots = fleet
    settle(jobs, slots)
    large = max(jobs) + 1
    jobs[large] = job(large, slots, priority=1)
    before = {one.number for one in jobs.values() if one.rank < jobs[large].rank or one.state in HAS_SLOTS}
    number = large
    for size in sizes:
        number += 1
        jobs[number] = job(number, min(size, slots), priority=1)
        settle(jobs, slots)
        running = [one for one in sorted(before) if jobs[one].state is S.RUNNING]
        for one in running[:1]:
            jobs[one] = move(jobs[one], E.FINISH)
        for one in sorted(before):  # what is queued before it and did not start within this test is stopped
            if not running and jobs[one].state is S.QUEUED:
                jobs[one] = move(jobs[one], E.STOP)
    settle(jobs, slots)
    assert jobs[large].state is S.RUNNING


def test_a_finished_job_leaves_the_others_as_they_are():
    jobs = {1: job(1, state=S.RUNNING), 2: replace(job(2, state=S.RUNNING), passed=(7,))}
    happen(jobs, 1, E.FINISH)
    assert plan(jobs.values(), 2, 0.0) == ()
