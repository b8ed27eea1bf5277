"""The machine under random events: no illegal move, and what must hold after every event."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.support.examples import scaled
from tests.trainer.scheduling.random_events import ROLES, SERVERS, RandomEvents, random_settings
from trainer.scheduling.advance import advance
from trainer.scheduling.current_orders import orders_for
from trainer.scheduling.due import next_due, secs_to_next_due
from trainer.scheduling.events import Event, Joined, RoleKind, Tick
from trainer.scheduling.job import Job
from trainer.scheduling.orders import Instruction, Leave, Publish, Send, StartEpoch
from trainer.scheduling.transitions import ATTEMPT, FINAL, TRANSITIONS, EventKind, JobState

#: Moves that random events rarely make.
RARE = {
    (JobState.AWAY, EventKind.LEFT, JobState.TRAINING),
    (JobState.AWAY, EventKind.NOTICE, JobState.TRAINING),
    (JobState.AWAY, EventKind.PUBLISHED, JobState.WAITING_FOR_DATA),
    (JobState.AWAY, EventKind.PUBLISHED, JobState.DONE),
    (JobState.STARTING, EventKind.LEFT, JobState.TRAINING),
    (JobState.DRAINING, EventKind.COMMIT_FAILED, JobState.TRAINING),
    (JobState.DRAINING, EventKind.DRAINED, JobState.AWAY),
    (JobState.DRAINING, EventKind.DRAINED, JobState.STOPPED),
    (JobState.ENDING, EventKind.COMMIT_FAILED, JobState.STOPPED),
    (JobState.HELD, EventKind.DATA_CHANGED, JobState.DONE),
    (JobState.WAITING_FOR_DATA, EventKind.DATA_CHANGED, JobState.DONE),
}

Moves = Counter[tuple[JobState, EventKind, JobState]]


def check(before: Job, event: Event, job: Job, told: tuple[Instruction, ...]) -> None:
    assert job.attempt in (before.attempt, before.attempt + 1), "attempts never repeat"
    assert job.commit.epochs in (before.commit.epochs, before.commit.epochs + 1)
    assert job.commit.next_unit >= before.commit.next_unit
    assert job.now_secs >= before.now_secs
    if before.state in FINAL:
        assert job.state is before.state
    if isinstance(event, Tick):
        assert next_due(job) is None
    assert secs_to_next_due(job) >= 0
    if job.state in ATTEMPT:
        assert job.commit.next_unit <= job.first_unit <= job.stop_unit
        assert job.first_unit == (job.commit.next_unit if job.pending is None else job.first_unit)
        assert job.epoch == job.commit.epochs + (job.pending is not None and job.pending.commit.attempt < job.attempt)
    if job.pending is not None:
        assert job.pending.commit.epochs == job.commit.epochs + 1
        assert job.pending.is_publishing == (not job.pending.missing)
    if job.state in (JobState.HELD, *FINAL):
        assert all(isinstance(order, Leave) for role in ROLES for order in orders_for(job, role, 1))
        assert all(one.is_leaving for role, one in job.members.items() if role in ROLES)
    assert (job.hold is not None) == (job.state is JobState.HELD)
    if job.state in ATTEMPT and job.attempt > before.attempt:
        away = {role.name for role in job.away if role in SERVERS}
        away |= (
            {event.role.name} if isinstance(event, Joined) and event.role in SERVERS else set()
        )  # its process before
        _check_servers(job, away)
        if job.unused_servers != before.unused_servers:
            assert job.continues is None, "tables on other servers are restored"
        assert not job.misses_workers, "an attempt does not begin while all embedding workers are away"
    if job.pending is not None and job.pending.missing:
        assert not any(orders_for(job, role, one.incarnation) for role, one in job.members.items() if role in SERVERS)
    if job.partition != before.partition:
        assert job.pending is None, "the commit of the plan before is published first"
        assert job.continues is None or job.state not in ATTEMPT, "rows on other hosts are restored"
    if job.pending is not None:
        assert job.pending.partition == job.partition
    for one in told:
        if isinstance(one, Send) and isinstance(one.order, StartEpoch):
            assert one.order.attempt == job.attempt
            assert one.order.commit.attempt == job.commit.attempt
            assert one.order.partition == job.partition
        if isinstance(one, Publish):
            assert set(one.parts) == set(one.hosts)


def _check_servers(job: Job, away: set[str]) -> None:
    settings, unused = job.settings, set(job.unused_servers)
    if not settings.servers:
        assert away >= unused, "an attempt begins on the servers that are not away"
        assert not unused or len(SERVERS) - len(unused) >= settings.least_servers >= 1
        return
    used = {f"s{k}" for k in range(settings.servers)} - unused
    assert not used & {role.name for role in job.away}, "an attempt begins on servers that are not away"
    assert len(used) <= job.wanted_servers
    assert len(used) >= (settings.scales_from or job.wanted_servers) or not job.away_of(RoleKind.SERVER)
    assert not settings.scales_from or used <= set(job.running_servers)


def run(seed: int, events: int, moves: Moves, *, servers: bool = False) -> list[Event]:
    draw = random.Random(seed)
    job, source, log = Job(random_settings(draw)), RandomEvents(draw, servers=servers), list[Event]()
    if servers and not job.settings.servers:
        job = replace(job, settings=replace(job.settings, least_servers=draw.choice([0, 1, 2])))
    for _ in range(events):
        event = source.next(job)
        before, (job, told) = job, advance(job, event)
        check(before, event, job, told)
        log.append(event)
        moves[before.state, event.kind, job.state] += 1
        if job.state in FINAL and draw.random() < 0.2:
            break
    return log


@pytest.mark.slow
def test_random_events_move_a_job_only_as_the_table_says() -> None:
    moves: Moves = Counter()
    for seed in range(scaled(240)):
        run(seed, 200, moves)
        run(seed, 200, moves, servers=True)
    assert {after for _, _, after in moves} == set(JobState)


@pytest.mark.slow
def test_every_move_of_the_table_happens() -> None:
    """An entry that no events reach would be a wrong statement about the machine."""
    moves: Moves = Counter()
    for seed in range(4_000):
        run(seed, 200, moves)
    for seed in range(1_000):
        run(seed, 200, moves, servers=True)
    unreached = {
        (state, kind, after)
        for (state, kind), targets in TRANSITIONS.items()
        for after in targets
        if kind not in (EventKind.LOST, EventKind.EPOCH_DUE, EventKind.DEADLINE, EventKind.RESUME)
    } - set(moves)
    assert unreached <= RARE


def test_a_replay_gives_the_same_job() -> None:
    for seed in range(5):
        log = run(seed, 300, Counter())
        settings = random_settings(random.Random(seed))
        first = second = Job(settings)
        for event in log:
            first, told = advance(first, event)
            second, again = advance(second, event)
            assert told == again
        assert first == second
