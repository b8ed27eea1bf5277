"""A job whose embedding workers are preempted: it goes on with another one, or commits and waits, with the bits of an undisturbed one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.drained_server import DrainedServer, at_a_distance
from tests.support.parameter_servers import ThreadServer, thread_servers
from tests.trainer.job.launch.jobs import launch, make_warehouse, run_job, settings, supervise
from tests.trainer.job.launch.test_preempted_servers import (
    OPTIONS,
    Preemption,
    early_ends,
    in_an_epoch,
    is_away,
    spec_of,
    trains,
)
from trainer.job.control.messages import JobStatus
from trainer.job.launch.run_comparison import run_differences
from trainer.scheduling.events import RoleKind
from trainer.scheduling.transitions import JobState
from warehouse import Warehouse

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
HOSTS, FEWER = 2, {**OPTIONS, "passes": 4}


@contextmanager
def workers_of(
    folder: Path, servers: list[ThreadServer], count: int
) -> Iterator[tuple[list[DrainedServer], Callable[[], None]]]:
    """Embedding workers of these servers that wait for a commit, however slow the machine; then what ends their distance."""
    addresses = ",".join(str(one.address) for one in servers)
    options = ("--servers", addresses, "--no-server-token", "--drain-secs", "3000")
    with ExitStack() as stack:
        found = [DrainedServer(folder / f"worker-{k}", *options, kind="worker") for k in range(count)]
        for one in found:
            stack.callback(one.close)
            one.start()
        yield found, stack.enter_context(at_a_distance(found))


def check(run: Path, warehouse: Warehouse) -> None:
    """The run has the bits of one whose hosts use the servers themselves, and that nothing disturbs."""
    with thread_servers(2) as calm:
        run_job(warehouse, run.parent / "calm", settings(HOSTS), unit_rows=300, servers=spec_of(calm), **FEWER)
    assert run_differences(run, run.parent / "calm") == ()


def live(status: JobStatus) -> set[str]:
    return {one.role.name for one in status.live(RoleKind.WORKER)}


def test_without_another_worker_the_epoch_is_committed_and_the_job_waits(tmp_path: Path) -> None:
    """Twice; the job waits without a restart."""
    run, said = tmp_path / "run", list[str]()
    with (
        make_warehouse(tmp_path / "warehouse", hours=2, rows=4000) as warehouse,
        thread_servers(2) as servers,
        workers_of(tmp_path, servers, 1) as ((worker,), approach),
    ):
        spec = replace(spec_of(servers), workers=(str(worker.address),))
        job = launch(warehouse, run, settings(HOSTS), unit_rows=300, servers=spec, **FEWER)
        steps = Preemption(
            (lambda status: in_an_epoch(status) and live(status) == {"w0"}, worker.terminate),
            (lambda status: is_all_away(status) and worker.has_ended(), worker.start),
            (lambda status: in_an_epoch(status) and live(status) == {"w0"}, worker.terminate),
            (lambda status: is_all_away(status) and worker.has_ended(), worker.start),
            at_end=approach,
        )
        assert supervise(run, job, on_status=steps, say=said.append).run(job.newest).state is JobState.DONE
        assert steps.is_over
        assert worker.log.count("the server ends: its clients do not need it") == 2
        assert early_ends(run) == 2
        assert JobState.RESTARTING not in steps.states, "no attempt failed"
        name = f"embedding worker w0 ({worker.address})"
        assert said[0] == f"{name} leaves after SIGTERM: hosts go on with another one; without one the epoch ends early, and is committed first"  # fmt: skip
        assert said[1].startswith(f"{name} is back after ")
        check(run, warehouse)


def is_all_away(status: JobStatus) -> bool:
    """Whether the job waits for its embedding workers."""
    return is_away(status) and any(role.kind is RoleKind.WORKER for role in status.away) and not live(status)


def test_hosts_go_on_with_the_other_worker(tmp_path: Path) -> None:
    """Each worker leaves in turn, and is back before the other one leaves; a person gives the last notice."""
    run = tmp_path / "run"
    with (
        make_warehouse(tmp_path / "warehouse", hours=2, rows=4000) as warehouse,
        thread_servers(2) as servers,
        workers_of(tmp_path, servers, 2) as ((first, second), approach),
    ):
        spec = replace(spec_of(servers), workers=(str(first.address), str(second.address)))
        job = launch(warehouse, run, settings(HOSTS), unit_rows=300, servers=spec, **FEWER)

        def both(status: JobStatus) -> bool:
            return in_an_epoch(status) and live(status) == {"w0", "w1"}

        steps = Preemption(
            (both, first.terminate),
            (lambda status: trains(status) and live(status) == {"w1"} and first.has_ended(), first.start),
            (both, second.terminate),
            (lambda status: trains(status) and live(status) == {"w0"} and second.has_ended(), second.start),
            (both, lambda: None),
            at_end=approach,
        )
        assert supervise(run, job, on_status=steps).run(job.newest).state is JobState.DONE
        assert steps.is_over
        assert early_ends(run) == 0, "no epoch ended early"
        assert JobState.RESTARTING not in steps.states
        assert JobState.AWAY not in steps.states
        check(run, warehouse)
