"""A job of one host trains pruned tables as one process does, also on parameter servers, and after its host was killed."""

from __future__ import annotations

import pytest

from tests.support.parameter_servers import thread_servers
from tests.trainer.launch.jobs import launch, make_warehouse, newest, run_job, run_killed, settings
from trainer.launch.job_spec import ServersSpec
from trainer.launch.run_comparison import run_differences

pytest.importorskip("tensorflow")
OPTIONS = {
    "batch_rows": 64,
    "passes": 2,
    "linear": True,
    "keep_checkpoints": 9,
    "pruning": {"budget": 0.1, "round_steps": 3},
}


@pytest.mark.slow
def test_a_host_that_is_killed_prunes_as_one_that_is_not(tmp_path):
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse, thread_servers(2) as servers:
        on_servers = ServersSpec(tuple(str(one.address) for one in servers), run=1)
        run_job(warehouse, tmp_path / "alone", settings(1), unit_rows=300, **OPTIONS)
        rounds = {array[2] for name, array in newest(tmp_path / "alone").arrays.items() if "/pruning/" in name}
        assert max(rounds) > 5
        for name, spec in (("killed", None), ("served", on_servers)):
            job = launch(
                warehouse, tmp_path / name, settings(1, most_restarts=9), unit_rows=300, servers=spec, **OPTIONS
            )
            run_killed(tmp_path / name, job)
            assert run_differences(tmp_path / name, tmp_path / "alone") == (), name
