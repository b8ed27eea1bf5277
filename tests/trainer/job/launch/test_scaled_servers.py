"""A job that scales its parameter servers: processes start and end, and it has the bits of a job whose servers stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.options.servers import server_command
from tests.support.parameter_servers import thread_servers
from tests.trainer.job.launch.jobs import launch, make_warehouse, run_job, settings, supervise
from tests.trainer.job.launch.test_preempted_servers import OPTIONS, Preemption, away, in_an_epoch, spec_of
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.local_servers import LocalServers
from trainer.job.launch.run_comparison import run_differences
from trainer.job.launch.training_job import LaunchedJob
from trainer.scheduling.transitions import JobState
from trainer.servers.server_status import read_status
from transforms.errors import HeadraceError
from warehouse import Warehouse

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
LONG = {**OPTIONS, "passes": 5}


@contextmanager
def scaled(folder: Path, run: Path, hosts: int = 1) -> Iterator[tuple[Warehouse, LaunchedJob, LocalServers]]:
    """A warehouse, a job that has its tables on one to three servers, and these, of which the first one runs."""
    files = JobFiles(run)
    files.make_token()
    servers = LocalServers(3, server_command, token_file=files.token, logs=run / "logs", runs=str(run), started=1)
    with make_warehouse(folder / "warehouse", hours=2, rows=4000) as warehouse, servers:
        spec = ServersSpec(tuple(map(str, servers.addresses)), token_file=str(files.token), run=1)
        of = settings(hosts, servers=3, scales_from=1)
        yield warehouse, launch(warehouse, run, of, unit_rows=300, servers=spec, **LONG), servers


def check(run: Path, warehouse: Warehouse, hosts: int = 1) -> None:
    with thread_servers(1) as calm:
        run_job(warehouse, run.parent / "calm", settings(hosts), unit_rows=300, servers=spec_of(calm), **LONG)
    assert run_differences(run, run.parent / "calm") == ()


def asks(run: Path, job: LaunchedJob, servers: int) -> Any:
    """Asks the controller for so many servers."""

    def ask() -> None:
        client = ControllerClient.of_run(JobFiles(run), job=job.spec.job)
        try:
            client.servers(servers)
        finally:
            client.close()

    return ask


def on(servers: int) -> Any:
    """Whether an epoch trains on so many servers."""
    return lambda status: in_an_epoch(status) and status.used_servers == servers == status.wanted_servers


@pytest.mark.parametrize("hosts", [1, 2])
def test_servers_start_and_end_as_they_are_wanted(tmp_path: Path, hosts: int) -> None:
    run = tmp_path / "run"
    with scaled(tmp_path, run, hosts) as (warehouse, job, servers):
        ran: list[set[str]] = []

        def note() -> None:
            ran.append(set(servers.processes))

        def ended(status: JobStatus) -> bool:
            return on(1)(status) and set(servers.processes) == {"s0"}

        steps = Preemption(
            (on(1), note),
            (on(1), asks(run, job, 3)),
            (on(3), note),
            (on(3), asks(run, job, 1)),
            (ended, note),
            (on(1), asks(run, job, 2)),
            (on(2), note),
        )
        supervisor = supervise(run, job, on_status=steps, server_scale=servers)
        assert supervisor.run(job.newest).state is JobState.DONE
        assert steps.is_over
        assert ran == [{"s0"}, {"s0", "s1", "s2"}, {"s0"}, {"s0", "s1"}]
        assert not {JobState.AWAY, JobState.RESTARTING, JobState.HELD} & set(steps.states), (
            "no attempt failed, and it has waited for no server"
        )
        assert not any(away(status) for status in steps.statuses), "servers that end are not waited for"
        token = servers.token
        assert read_status(servers.addresses[1], token=token).updates > 0
        check(run, warehouse, hosts)


def test_kills_at_each_step_of_a_change_lose_nothing(tmp_path: Path) -> None:
    """A new server is killed before it has joined, and again with its rows; the controller once more servers are wanted, and a host after the change."""
    run = tmp_path / "run"
    with scaled(tmp_path, run) as (warehouse, job, servers):

        def kill(kind: str) -> None:
            next(one for one in supervisor.running().values() if one.kind == kind).process.kill()

        def is_started(status: JobStatus) -> bool:
            return "s1" in servers.processes

        attempts: list[int] = []

        def again(status: JobStatus) -> bool:
            attempts.extend([status.attempt] * (not attempts))
            return on(2)(status) and status.attempt > attempts[0]

        steps = Preemption(
            (on(1), asks(run, job, 2)),
            (is_started, lambda: servers.lose("s1")),
            (lambda status: status.wanted_servers == 2, lambda: kill("controller")),
            (on(2), lambda: servers.lose("s1")),
            (again, lambda: kill("host")),
        )
        supervisor = supervise(run, job, on_status=steps, server_scale=servers)
        assert supervisor.run(job.newest).state is JobState.DONE
        assert steps.is_over
        check(run, warehouse)


def test_a_job_that_is_started_again_has_as_many_servers_as_before(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with scaled(tmp_path, run) as (warehouse, job, servers):
        steps = Preemption((on(1), asks(run, job, 2)), (on(2), lambda: supervisor.give_notice(30.0)))
        supervisor = supervise(run, job, on_status=steps, server_scale=servers)
        supervisor.run(job.newest)
        assert steps.is_over
        servers.follow({"s0"})
        again = launch(
            warehouse, run, settings(1, servers=3, scales_from=1), unit_rows=300, servers=job.spec.servers, **LONG
        )
        seen: list[int] = []
        supervisor = supervise(
            run, again, on_status=lambda status: seen.append(status.used_servers), server_scale=servers
        )
        assert supervisor.run(again.newest).state is JobState.DONE
        assert set(seen) <= {0, 2}
        assert seen[-1] == 2
        check(run, warehouse)


def test_a_number_that_the_job_may_not_have_is_refused(tmp_path: Path) -> None:
    run, refused = tmp_path / "run", []

    def ask_too_many() -> None:
        with pytest.raises(HeadraceError, match="in the range of the job") as error:
            asks(run, job, 4)()
        refused.append(error.value.allowed)

    with scaled(tmp_path, run) as (_, job, servers):
        steps = Preemption((on(1), ask_too_many))
        supervisor = supervise(run, job, on_status=steps, server_scale=servers)
        assert supervisor.run(job.newest).state is JobState.DONE
    assert refused == ["1 to 3"]
