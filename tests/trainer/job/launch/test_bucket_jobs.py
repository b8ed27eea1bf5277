"""Training jobs of real processes whose run directory is in a bucket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.launch.jobs import launch, make_warehouse, settings, supervise
from tests.trainer.job.launch.test_training_job import OPTIONS as JOB_OPTIONS
from tests.trainer.job.launch.test_training_job import is_exact, same
from trainer.checkpoints.checkpoint import epochs_committed
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.stored_plans import find_plan
from trainer.errors import RunMismatch
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.holds import find_hold, release_hold
from trainer.job.launch.job_folders import BUCKET_JOBS
from trainer.run.weights.saved_run import read_newest_run
from trainer.scheduling.transitions import JobState

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
OPTIONS = {"batch_rows": 64, "dim": 4, "bottom_mlp": [8], "top_mlp": [8], "deep": True, "linear": False, "passes": 2,
           "embedding_learning_rate": 0.05, "dense_learning_rate": 0.003, "partitions_per_epoch": 4,
           "deterministic": True}  # fmt: skip


class Commands:
    """``headrace train`` of one model, with its emulator in the environment."""

    def __init__(self, folder: Path, emulator: str, hosts: int) -> None:
        self.folder, self._hosts = folder, hosts
        self._environment = {**os.environ, "STORAGE_EMULATOR_HOST": f"http://{emulator}"}
        (folder / "options.json").write_text(json.dumps(OPTIONS))
        self.errors = folder / "errors.txt"

    def start(self, run_dir: str, *options: str) -> subprocess.Popen[str]:
        """A command that leads a group of its own, with all of its roles."""
        command = ["train", "ctr", "--home", str(self.folder / "home"), "--run-dir", run_dir, "--json",
                   "--config", str(self.folder / "options.json"), "--hosts", str(self._hosts), "--readers", "1", *options]  # fmt: skip
        with open(self.errors, "a") as errors:
            return subprocess.Popen([sys.executable, "-m", "headrace", *command], stdout=subprocess.PIPE, stderr=errors,
                                    text=True, start_new_session=True, env=self._environment)  # fmt: skip

    def finish(self, run_dir: str):
        """The report of a command that ends by itself."""
        process = self.start(run_dir)
        out, _ = process.communicate(timeout=PATIENCE_SECS)
        assert process.returncode == 0, self.errors.read_text()
        return json.loads(out)

    def kill_after(self, commits: int, run_dir: str, location: str) -> None:
        """Start a command, and kill it with all of its roles when so many epochs are committed."""
        process = self.start(run_dir, "--epoch-secs", "0.01")
        end = time.monotonic() + PATIENCE_SECS
        while epochs_committed(location) < commits:
            assert process.poll() is None, self.errors.read_text()
            assert time.monotonic() < end, self.errors.read_text()
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_SECS)


@pytest.mark.parametrize("hosts", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_killed_job_in_a_bucket_goes_on_and_without_its_folder_too(tmp_path, gcs_server, hosts):
    """It trains the same bits as a job in a local folder, though it also commits within epochs."""
    make_warehouse(tmp_path, hours=16, rows=100).close()
    commands = Commands(tmp_path, gcs_server.address, hosts)
    bucket = gcs_server.bucket()
    given, location = f"gs://{bucket}/runs/ctr-v1", gcs_server.home(bucket, "runs/ctr-v1")
    commands.kill_after(2, given, location)
    (folder,) = (tmp_path / "home" / BUCKET_JOBS).iterdir()
    assert folder.name.startswith(f"{bucket}-runs-ctr-v1-")
    commands.kill_after(4, given, location)
    shutil.rmtree(folder)
    saved = read_newest_run(location, on_skip=pytest.fail)
    assert find_plan(open_run(location), saved.job.plan) is not None
    report = commands.finish(given)
    assert (report["exact"], report["counted"], report["finished"]) == (True, 1600, True)
    assert report["resumed_from"].startswith(f"gs://{bucket}/")
    assert 0 < report["events_this_time"] < 2 * 1600
    assert (folder / "job" / "documents" / saved.job.plan).exists(), "the plan of the commit came from the bucket"
    assert not (tmp_path / "gs:").exists()
    commands.finish(str(tmp_path / "local"))
    same(location, tmp_path / "local")


def test_of_two_controllers_in_a_bucket_one_is_held(tmp_path, gcs_server):
    """Both begin at the same commit, with job folders of their own, as on two machines."""
    location = gcs_server.home(gcs_server.bucket(), "run")
    folders = (tmp_path / "one", tmp_path / "two")
    with make_warehouse(tmp_path, hours=3, rows=600) as warehouse:
        jobs = [launch(warehouse, location, settings(), folder=folder, **JOB_OPTIONS) for folder in folders]
        found = {}

        def run(folder: Path, job) -> None:
            found[folder] = supervise(folder, job).run(job.newest)

        threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in zip(folders, jobs, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECS)
        assert sorted(one.state for one in found.values()) == [JobState.DONE, JobState.HELD]
        loser = next(folder for folder, one in found.items() if one.state is JobState.HELD)
        assert found[loser].hold.reason.startswith("CommitConflict: a commit must be new")
        assert is_exact(warehouse, location)
        with pytest.raises(RunMismatch, match="a job folder must belong to one run"):
            launch(warehouse, gcs_server.home(gcs_server.bucket(), "run"), settings(), folder=loser, **JOB_OPTIONS)
        files = JobFiles(loser)
        release_hold(files)
        again = launch(warehouse, location, settings(), folder=loser, **JOB_OPTIONS)
        assert (again.newest.epochs, find_hold(files)) == (6, None)
