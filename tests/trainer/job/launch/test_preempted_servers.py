"""A job whose parameter servers are preempted: its epoch ends early and is committed, and it trains the bits of an undisturbed one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.drained_server import DrainedServer, at_a_distance
from tests.support.parameter_servers import thread_servers
from tests.trainer.job.launch.jobs import launch, make_warehouse, newest, run_job, settings, supervise
from trainer.job.control.messages import JobStatus
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.run_comparison import run_differences
from trainer.scheduling.events import RoleKind
from trainer.scheduling.transitions import ATTEMPT, JobState

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
OPTIONS = {"batch_rows": 32, "passes": 6, "linear": True, "keep_checkpoints": 99}


@contextmanager
def drained_servers(folder: Path, count: int):
    """Servers that wait for a commit, however slow the machine."""
    with ExitStack() as stack:
        servers = [DrainedServer(folder / f"server-{k}", "--drain-secs", "3000") for k in range(count)]
        for one in servers:
            stack.callback(one.close)
        threads = [threading.Thread(target=one.start) for one in servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield servers


def spec_of(servers) -> ServersSpec:
    return ServersSpec(tuple(str(one.address) for one in servers), run=1)


class Preemption:
    """Does its steps one after the other, each once it may be done, then ``at_end``: the statuses of a job drive it."""

    def __init__(
        self,
        *steps: tuple[Callable[[JobStatus], bool], Callable[[], None]],
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._steps, self.states, self.statuses, self._at_end = list(steps), [], [], at_end

    def __call__(self, status: JobStatus) -> None:
        self.statuses.append(status)
        if not self.states or self.states[-1] is not status.state:
            self.states.append(status.state)
        while self._steps and self._steps[0][0](status):
            self._steps.pop(0)[1]()
            if not self._steps:
                self._at_end()

    @property
    def is_over(self) -> bool:
        return not self._steps


def in_an_epoch(status: JobStatus) -> bool:
    """Whether an epoch after the first one has begun, and trained events."""
    trained = any(
        one.progress and one.progress.attempt == status.attempt and one.progress.events for one in status.members
    )
    return status.state is JobState.TRAINING and status.commit_epochs >= 1 and trained


def trains(status: JobStatus) -> bool:
    return status.state is JobState.TRAINING


def away(status: JobStatus) -> tuple[str, ...]:
    """The names of the servers that are away."""
    return tuple(role.name for role in status.away if role.kind is RoleKind.SERVER)


def is_away(status: JobStatus) -> bool:
    return status.state is JobState.AWAY


def check(run: Path, warehouse, hosts: int) -> None:
    """The run has the bits of an undisturbed one, and every event was trained as often as it has passes."""
    with thread_servers(2) as calm:
        run_job(warehouse, run.parent / "calm", settings(hosts), unit_rows=300, servers=spec_of(calm), **OPTIONS)
    assert run_differences(run, run.parent / "calm") == ()


def early_ends(run: Path) -> int:
    """The commits of a run that are within an epoch."""
    last = newest(run)
    return last.epochs_done - last.document["position"]["epochs_done"]


@pytest.mark.parametrize("hosts", [1, 2])
def test_an_epoch_ends_early_and_goes_on_when_the_server_is_back(tmp_path, hosts):
    run, said = tmp_path / "run", []
    with (
        make_warehouse(tmp_path / "warehouse", hours=2, rows=4000) as warehouse,
        drained_servers(tmp_path, 2) as servers,
        at_a_distance(servers) as approach,
    ):
        job = launch(warehouse, run, settings(hosts), unit_rows=300, servers=spec_of(servers), **OPTIONS)
        preempted = servers[1]
        steps = Preemption(
            (in_an_epoch, preempted.terminate),
            (lambda status: is_away(status) and preempted.has_ended(), preempted.start),
            at_end=approach,
        )
        supervisor = supervise(run, job, on_status=steps, say=said.append)
        assert supervisor.run(job.newest).state is JobState.DONE
        assert steps.is_over
        assert "the server ends: its clients do not need it" in preempted.log
        assert early_ends(run) == 1
        assert JobState.RESTARTING not in steps.states, "no attempt failed"
        leaves, back = said
        assert (
            leaves
            == f"server s1 ({preempted.address}) leaves after SIGTERM: the epoch ends early, and is committed first"
        )
        assert back.startswith(f"server s1 ({preempted.address}) is back after ")
        check(run, warehouse, hosts)


def test_a_job_goes_on_without_a_server_and_takes_it_back(tmp_path):
    """Then two of three leave at once, which are too many to go on; then one is killed while it drains."""
    run = tmp_path / "run"
    with (
        make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse,
        drained_servers(tmp_path, 3) as servers,
        at_a_distance(servers) as approach,
    ):
        job = launch(warehouse, run, settings(2, least_servers=2), unit_rows=300, servers=spec_of(servers), **OPTIONS)
        first, second, third = servers
        steps = Preemption(
            (in_an_epoch, second.terminate),
            (lambda status: trains(status) and "s1" in away(status) and second.has_ended(), second.start),
            (lambda status: in_an_epoch(status) and not away(status), lambda: (first.terminate(), third.terminate())),
            (lambda status: is_away(status) and first.has_ended() and third.has_ended(), lambda: (third.start(), first.start())),
            (lambda status: in_an_epoch(status) and not away(status), second.terminate),
            (lambda status: status.state in ATTEMPT - {JobState.TRAINING}, second.close),
            (lambda status: second.has_ended(), second.start),
            at_end=approach,
        )  # fmt: skip
        assert supervise(run, job, on_status=steps).run(job.newest).state is JobState.DONE
        assert steps.is_over
        assert early_ends(run) >= 1
        check(run, warehouse, 2)


def test_a_server_may_leave_before_the_first_attempt_and_in_a_commit(tmp_path):
    run = tmp_path / "run"
    with (
        make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse,
        drained_servers(tmp_path, 2) as servers,
        at_a_distance(servers) as approach,
    ):
        job = launch(warehouse, run, settings(1), unit_rows=300, servers=spec_of(servers), **OPTIONS)
        preempted = servers[0]
        steps = Preemption(
            (lambda status: status.state is JobState.STARTING and status.live(RoleKind.SERVER), preempted.terminate),
            (lambda status: is_away(status) and preempted.has_ended(), preempted.start),
            (lambda status: trains(status) and status.pending_attempt is not None, preempted.terminate),
            (lambda status: is_away(status) and preempted.has_ended(), preempted.start),
            at_end=approach,
        )
        assert supervise(run, job, on_status=steps).run(job.newest).state is JobState.DONE
        assert steps.is_over
        assert JobState.RESTARTING not in steps.states
        check(run, warehouse, 1)
