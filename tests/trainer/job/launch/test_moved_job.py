"""A job of real processes whose tables a user moves to other servers: it trains the bits of one whose tables stay."""

from __future__ import annotations

import json
import threading

import pytest

from headrace.cli.main import run as run_command
from tests.support.parameter_servers import thread_servers
from tests.trainer.job.launch.jobs import launch, make_warehouse, run_job, settings, supervise
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.run_comparison import run_differences
from trainer.scheduling.transitions import JobState
from trainer.servers.moves.job_moves import documents_of_run

pytest.importorskip("tensorflow")
OPTIONS = {"batch_rows": 64, "passes": 4, "linear": True, "keep_checkpoints": 99}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_a_job_goes_on_with_tables_on_other_servers(tmp_path, place, gcs_server, capsys):
    """By the command, in a thread here, so that it begins before the job has ended. It restarts no host; then both hosts are killed, and those in their place find
    the tables on the other servers.
    """
    folder = tmp_path / "run"
    run = str(folder) if place == "folder" else gcs_server.home(gcs_server.bucket(), "runs/ctr-v1")
    threads, statuses, killed, restarts = [], [], [], []
    with (
        make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse,
        thread_servers(2) as before,
        thread_servers(3) as after,
        thread_servers(2) as calm,
    ):
        spec = ServersSpec(tuple(str(one.address) for one in before), run=1)
        job = launch(
            warehouse, run, settings(2, most_restarts=9), unit_rows=300, servers=spec, folder=folder, **OPTIONS
        )
        servers = tuple(one.address for one in after)
        documents = documents_of_run(run)
        command = ["ps", "move", str(folder), "--servers", ",".join(map(str, servers)), "--json"]

        def act(status):
            if status.commit_epochs >= 1 and not threads:
                threads.append(threading.Thread(target=lambda: statuses.append(run_command(command))))
                threads[0].start()
            if threads and not killed and (move := documents.read_state().move) is not None and move.is_over:
                restarts.append(status.restarts)
                for host in [one for one in supervisor.running().values() if one.kind == "host"]:
                    host.process.kill()
                    killed.append(host)

        supervisor = supervise(folder, job, on_status=act)
        assert supervisor.run(job.newest).state is JobState.DONE
        threads[0].join()
        printed = capsys.readouterr()
        assert statuses == [0], printed.err
        screen = json.loads(printed.out)
        assert screen["servers"] == list(map(str, servers))
        assert screen["pause_rows"] > 0
        assert restarts == [0], "the move itself has restarted nothing"
        assert len(killed) == 2
        assert documents.read_state().servers == servers
        on_calm = ServersSpec(tuple(str(one.address) for one in calm), run=1)
        run_job(warehouse, tmp_path / "calm", settings(2), unit_rows=300, servers=on_calm, **OPTIONS)
        assert run_differences(run, tmp_path / "calm") == ()
