"""A job of real processes whose servers write and read their shards themselves: it trains the bits of one whose rows pass through a host."""

from __future__ import annotations

import pytest

from tests.support.parameter_servers import thread_servers
from tests.trainer.job.launch.jobs import launch, make_warehouse, newest, run_job, run_killed, settings
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import verify_commit
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.run_comparison import run_differences

pytest.importorskip("tensorflow")
OPTIONS = {"batch_rows": 64, "passes": 2, "linear": True, "keep_checkpoints": 9}


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 2])
def test_servers_of_a_job_write_and_read_their_shards(tmp_path, hosts):
    """Although a host is killed, after which the servers load their shards again."""
    run = tmp_path / "run"
    with (
        make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse,
        thread_servers(2, runs=[run]) as own,
        thread_servers(2) as others,
    ):
        specs = [ServersSpec(tuple(str(one.address) for one in servers), run=1) for servers in (own, others)]
        job = launch(warehouse, run, settings(hosts, most_restarts=9), unit_rows=300, servers=specs[0], **OPTIONS)
        run_killed(run, job)
        run_job(warehouse, tmp_path / "rows", settings(hosts), unit_rows=300, servers=specs[1], **OPTIONS)
    commits = [verify_commit(open_run(one), newest(one).name) for one in (run, tmp_path / "rows")]
    assert [len(one.shards) for one in commits] == [2, 0]
    assert len(commits[0].parts) == hosts
    assert run_differences(run, tmp_path / "rows") == ()
