"""A job of one host trains pruned tables as one process does, also on parameter servers, and after its host was killed."""

from __future__ import annotations

import pytest

from tests.support.parameter_servers import thread_servers
from tests.trainer.launch.jobs import launch, make_warehouse, newest, settings, supervise
from trainer.launch.job_spec import ServersSpec
from trainer.launch.run_comparison import run_differences
from trainer.scheduling.transitions import JobState

pytest.importorskip("tensorflow")
OPTIONS = {
    "batch_rows": 64,
    "passes": 2,
    "linear": True,
    "keep_checkpoints": 9,
    "pruning": {"budget": 0.1, "round_steps": 3},
}


def run_killed(warehouse, folder, kills: bool, servers: ServersSpec | None = None) -> None:
    """Run a job, whose host is killed after the first commit."""
    job = launch(warehouse, folder, settings(1, most_restarts=9), unit_rows=300, servers=servers, **OPTIONS)
    killed = []

    def kill(status):
        if kills and status.commit_epochs >= 1 and not killed:
            host = next(one for one in supervisor.running().values() if one.kind == "host")
            host.process.kill()
            killed.append(host)

    supervisor = supervise(folder, job, on_status=kill)
    assert supervisor.run(job.newest).state is JobState.DONE
    assert bool(killed) == kills


@pytest.mark.slow
def test_a_host_that_is_killed_prunes_as_one_that_is_not(tmp_path):
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse, thread_servers(2) as servers:
        on_servers = ServersSpec(tuple(str(one.address) for one in servers), run=1)
        run_killed(warehouse, tmp_path / "alone", False)
        rounds = {array[2] for name, array in newest(tmp_path / "alone").arrays.items() if "/pruning/" in name}
        assert max(rounds) > 5
        for name, spec in (("killed", None), ("served", on_servers)):
            run_killed(warehouse, tmp_path / name, True, spec)
            assert run_differences(tmp_path / name, tmp_path / "alone") == (), name
