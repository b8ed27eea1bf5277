"""``headrace train`` goes on from the newest commit of a job that was killed, also with other processes than it had."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.headrace.test_exporting_training import OPTIONS
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.launch.jobs import make_warehouse
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.job_spec import JobSpec
from transforms.errors import HeadraceError


def kill_in_attempt(command: list[str], run_dir: Path) -> None:
    """Kill a job once it trains what it has not committed yet."""
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE)
    end = time.monotonic() + PATIENCE_SECS
    while not trains(run_dir):
        assert process.poll() is None, "the job ended before it was killed"
        assert time.monotonic() < end
        time.sleep(0.05)
    process.kill()
    process.communicate()


def trains(run_dir: Path) -> bool:
    try:
        files = JobFiles(run_dir)
        client = ControllerClient.of_run(files, job=JobSpec.read(files).job, timeout_secs=5.0)
        status = client.status()
        client.close()
    except HeadraceError:  # it does not serve yet, or no more
        return False
    return status.attempt > status.commit_attempt > 0


@pytest.mark.slow
def test_a_job_that_is_killed_within_an_attempt_goes_on_with_other_hosts(tmp_path: Path) -> None:
    options, run_dir = tmp_path / "options.json", tmp_path / "run"
    options.write_text(json.dumps({**OPTIONS, "batch_rows": 4, "passes": 1, "partitions_per_epoch": 10}))
    make_warehouse(tmp_path, hours=4, rows=1500).close()

    def command(end: str, hosts: int) -> list[str]:
        places = ("--home", tmp_path / "home", "--run-dir", run_dir, "--config", options)
        words = ("train", "ctr", *places, "--end", end, "--hosts", hosts, "--readers", 1, "--json")
        return [sys.executable, "-m", "headrace", *map(str, words)]

    began = trained(command("2026-01-01T01:00", 1))
    assert began["counted"] == 1500
    kill_in_attempt(command("2026-01-01T04:00", 1), run_dir)
    found = trained(command("2026-01-01T04:00", 2))
    assert (found["exact"], found["counted"], found["fewest_times"], found["most_times"]) == (True, 6000, 1, 1)


def trained(command: list[str]) -> dict[str, object]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found
