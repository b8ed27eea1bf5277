"""A job with spare servers: a spare takes the place of a server with a notice, and the job has the bits of an undisturbed one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.drained_server import at_a_distance
from tests.support.parameter_servers import thread_servers
from tests.trainer.job.launch.jobs import launch, make_warehouse, run_job, settings, supervise
from tests.trainer.job.launch.test_preempted_servers import (
    OPTIONS,
    Preemption,
    away,
    drained_servers,
    early_ends,
    in_an_epoch,
    spec_of,
)
from trainer.job.control.messages import JobStatus
from trainer.job.launch.run_comparison import run_differences
from trainer.scheduling.transitions import ATTEMPT, JobState
from trainer.servers.server_status import read_status
from warehouse import Warehouse

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
FEWER = {**OPTIONS, "passes": 5}


def with_spare(hosts: int = 1):
    return settings(hosts, servers=3, spare_servers=1)


@contextmanager
def served(folder: Path, run: Path) -> Iterator[Any]:
    """A warehouse, a job with a spare that is ready to run, and its three servers, of which the last one is the spare; then what ends their distance."""
    with (
        make_warehouse(folder / "warehouse", hours=2, rows=4000) as warehouse,
        drained_servers(folder, 3) as servers,
        at_a_distance(servers) as approach,
    ):
        job = launch(warehouse, run, with_spare(), unit_rows=300, servers=spec_of(servers), **FEWER)
        yield warehouse, job, servers, approach


def check(run: Path, warehouse: Warehouse) -> None:
    with thread_servers(2) as calm:
        run_job(warehouse, run.parent / "calm", settings(1), unit_rows=300, servers=spec_of(calm), **FEWER)
    assert run_differences(run, run.parent / "calm") == ()


def test_a_spare_takes_the_place_of_a_server_without_a_wait(tmp_path: Path) -> None:
    """The first machine stays away for a whole epoch; once it is back, it is the spare of the next one."""
    run = tmp_path / "run"
    with served(tmp_path, run) as (warehouse, job, (first, _, spare), approach):
        commits: list[int] = []

        def without_first(status: JobStatus) -> bool:
            """Whether an epoch was committed on the spare, while the first server was away."""
            is_on = in_an_epoch(status) and away(status) == ("s0",)
            commits.extend([status.commit_epochs] * (is_on and not commits))
            return is_on and status.commit_epochs > commits[0] and first.has_ended()

        steps = Preemption(
            (lambda status: in_an_epoch(status) and not read_status(spare.address).updates, first.terminate),
            (without_first, first.start),
            (lambda status: in_an_epoch(status) and not away(status), spare.terminate),
            (lambda status: in_an_epoch(status) and away(status) == ("s2",) and spare.has_ended(), lambda: None),
            at_end=approach,
        )
        assert supervise(run, job, on_status=steps).run(job.newest).state is JobState.DONE
        assert steps.is_over
        assert early_ends(run) == 2
        assert not {JobState.AWAY, JobState.RESTARTING} & set(steps.states), (
            "it has waited for no machine, and no attempt failed"
        )
        assert read_status(first.address).updates > 0, "the first server has tables again"
        check(run, warehouse)


def test_kills_at_each_step_of_the_change_lose_nothing(tmp_path: Path) -> None:
    """The server that drains is killed before the commit; then the spare with its rows, and its host, in the first epoch on it."""
    run = tmp_path / "run"
    with served(tmp_path, run) as (warehouse, job, (first, _, spare), approach):
        on_spare: list[int] = []

        def takes_over(status: JobStatus) -> bool:
            found = status.state is JobState.TRAINING and away(status) == ("s0",)
            on_spare.extend([status.attempt] * (found and not on_spare))
            return found

        def kill_spare() -> None:
            spare.close()
            spare.start()

        def kill_host() -> None:
            next(one for one in supervisor.running().values() if one.kind == "host").process.kill()

        steps = Preemption(
            (in_an_epoch, first.terminate),
            (lambda status: status.state in ATTEMPT - {JobState.TRAINING}, first.close),
            (takes_over, kill_spare),
            (lambda status: status.state is JobState.TRAINING and status.attempt > on_spare[0], kill_host),
            (lambda status: status.state is JobState.TRAINING and status.attempt > on_spare[0] + 1, first.start),
            at_end=approach,
        )
        supervisor = supervise(run, job, on_status=steps)
        assert supervisor.run(job.newest).state is JobState.DONE
        assert steps.is_over
        check(run, warehouse)
