"""A job of real processes whose tables a user moves to other servers: it trains the bits of one whose tables stay."""

from __future__ import annotations

import pytest

from tests.support.parameter_servers import thread_servers
from tests.trainer.job.launch.jobs import launch, make_warehouse, run_job, settings, supervise
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.run_comparison import run_differences
from trainer.scheduling.transitions import JobState
from trainer.servers.moves.move_documents import MoveFiles, MoveRequest, new_id

pytest.importorskip("tensorflow")
OPTIONS = {"batch_rows": 64, "passes": 2, "linear": True, "keep_checkpoints": 9}


@pytest.mark.slow
def test_a_job_goes_on_with_tables_on_other_servers(tmp_path):
    """Without a restart of a host, and with one that is killed after the move: all hosts find the tables on the other servers."""
    run, files, asked, killed, restarts = tmp_path / "run", MoveFiles.of_run(tmp_path / "run"), [], [], []
    with (
        make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse,
        thread_servers(2) as before,
        thread_servers(3) as after,
        thread_servers(2) as calm,
    ):
        spec = ServersSpec(tuple(str(one.address) for one in before), run=1)
        job = launch(warehouse, run, settings(2, most_restarts=9), unit_rows=300, servers=spec, **OPTIONS)

        def act(status):
            if status.commit_epochs >= 1 and not asked:
                asked.append(MoveRequest(new_id(), files.read_state().training, tuple(one.address for one in after)))
                files.ask(asked[0])
            if asked and not killed:
                move = files.read_state().move
                if move is not None and move.is_over:
                    restarts.append(status.restarts)
                    for host in [one for one in supervisor.running().values() if one.kind == "host"]:
                        host.process.kill()
                        killed.append(move)

        supervisor = supervise(run, job, on_status=act)
        assert supervisor.run(job.newest).state is JobState.DONE
        assert [one.id for one in killed] == [asked[0].id] * 2
        assert killed[0].problem == {}
        assert killed[0].figures.pause_rows > 0
        assert restarts == [0], "the move itself has restarted nothing"
        assert files.read_state().servers == tuple(one.address for one in after)
        on_calm = ServersSpec(tuple(str(one.address) for one in calm), run=1)
        run_job(warehouse, tmp_path / "calm", settings(2), unit_rows=300, servers=on_calm, **OPTIONS)
        assert run_differences(run, tmp_path / "calm") == ()
