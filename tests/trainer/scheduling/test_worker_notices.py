"""Embedding workers as roles of a job: it goes on with another one; without one its epoch ends early, and the job waits."""

from __future__ import annotations

import pytest

from tests.trainer.scheduling.test_advance import host
from tests.trainer.scheduling.watched_scene import Watched
from trainer.scheduling.current_orders import orders_for
from trainer.scheduling.events import Left, Notice, Role, RoleKind, StopAsked
from trainer.scheduling.orders import Commit, Leave, StartEpoch
from trainer.scheduling.transitions import JobState

LEAVES = [Leave("preemption notice")]


def worker(n: int) -> Role:
    return Role(RoleKind.WORKER, f"w{n}")


class Pooled(Watched):
    """A job whose hosts reach servers by embedding workers, which have joined it."""

    kind = RoleKind.WORKER

    def start(self) -> StartEpoch:
        return next(one for one in orders_for(self.job, host(0), 1) if isinstance(one, StartEpoch))


def test_hosts_go_on_with_the_other_worker() -> None:
    """Nothing is committed early, and nothing trained again: a worker has no rows."""
    scene = Pooled()
    scene.notice(0)
    assert (scene.state, scene.job.attempt) == (JobState.TRAINING, 1)
    assert scene.orders_of(0) == LEAVES
    assert scene.orders_of(1) == []
    scene.leave(0)
    assert scene.state is JobState.TRAINING
    assert scene.job.away == {worker(0)}
    scene.join(worker(0))
    assert scene.job.away == frozenset()
    scene.notice(1)
    assert scene.state is JobState.TRAINING
    assert scene.orders_of(1) == LEAVES


def test_without_another_worker_the_epoch_ends_early_and_the_job_waits() -> None:
    scene = Pooled(1)
    scene.notice(0)
    assert scene.state is JobState.ENDING
    assert scene.orders_of(0) == [], "hosts train to the end of the epoch by it"
    scene.commit_early(4)
    assert scene.state is JobState.AWAY
    assert scene.orders_of(0) == LEAVES
    scene.leave(0)
    scene.pass_secs(500, host(0), Role(RoleKind.READER, "r0"))
    assert scene.state is JobState.AWAY, "without an end, and without a restart"
    assert scene.job.restarts == 0
    scene.join(worker(0))
    assert scene.state is JobState.TRAINING
    start = scene.start()
    assert (start.attempt, start.continues, start.first_unit) == (2, 1, 4), "hosts keep what they have"


def test_both_at_once_are_one_early_end_after_which_one_is_enough() -> None:
    scene = Pooled()
    scene.notice(0)
    scene.notice(1)
    assert scene.state is JobState.ENDING
    assert (scene.orders_of(0), scene.orders_of(1)) == (LEAVES, [])
    scene.commit_early(4)
    assert scene.state is JobState.AWAY
    scene.leave(0)
    scene.leave(1)
    scene.join(worker(1))
    assert scene.state is JobState.TRAINING
    assert scene.job.away == {worker(0)}


def test_a_worker_that_comes_back_while_the_epoch_ends_is_used_at_once() -> None:
    scene = Pooled()
    scene.notice(0)
    scene.leave(0)
    scene.notice(1)
    scene.join(worker(0))
    scene.commit_early(4)
    assert scene.state is JobState.TRAINING
    assert scene.orders_of(1) == LEAVES


def test_a_notice_beside_that_of_a_host_lets_the_worker_leave_at_once() -> None:
    scene = Pooled(2, hosts=2)
    scene.do(Notice(scene.now, 30.0, host(1)))
    scene.notice(0)
    assert scene.state is JobState.ENDING
    assert scene.orders_of(0) == LEAVES
    assert host(1) in scene.job.notices


@pytest.mark.parametrize("stops", [False, True])
def test_the_last_worker_killed_before_the_commit_costs_the_epoch(stops: bool) -> None:
    scene = Pooled(1)
    scene.notice(0)
    if stops:
        scene.do(StopAsked(scene.now))
    scene.leave(0)
    assert scene.state is (JobState.STOPPED if stops else JobState.AWAY)
    assert scene.job.restarts == 0
    if not stops:
        scene.join(worker(0))
        start = scene.start()
        assert (start.attempt, start.continues, start.commit) == (2, None, Commit())


def test_the_last_worker_killed_while_hosts_write_costs_nothing() -> None:
    scene = Pooled(1)
    scene.notice(0)
    scene.place(4)
    scene.drain()
    scene.leave(0)
    assert scene.state is JobState.COMMITTING
    scene.write()
    scene.publish()
    assert (scene.state, scene.job.commit) == (JobState.AWAY, Commit(1, 1, 4))


def test_a_worker_killed_without_a_notice_changes_nothing() -> None:
    """Hosts find out by themselves: its keeper starts it again."""
    scene = Pooled(1)
    scene.leave(0)
    assert (scene.state, scene.job.away) == (JobState.TRAINING, frozenset())


def test_a_notice_while_the_job_waits_lets_the_worker_leave() -> None:
    scene = Pooled(1, hosts=2)
    scene.do(Left(scene.now, host(1), scene.number(host(1))))
    assert scene.state is JobState.RESTARTING
    scene.notice(0)
    assert scene.orders_of(0) == LEAVES
    scene.leave(0)
    scene.join(host(1))
    scene.pass_secs(100, host(0), host(1), Role(RoleKind.READER, "r0"))
    assert scene.state is JobState.AWAY
    scene.join(worker(0))
    assert scene.state is JobState.TRAINING
