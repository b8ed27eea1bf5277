"""``headrace train --hosts``, as its user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.launch.jobs import make_warehouse, newest
from tests.trainer.run.test_history_runs import column, newest_history
from tests.warehouse.scenes import events, work, write_partition
from trainer.checkpoints.checkpoint import epochs_committed
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.job_spec import JobSpec
from trainer.scheduling.events import RoleKind
from trainer.scheduling.transitions import JobState
from transforms.errors import HeadraceError
from warehouse import register_table

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
OPTIONS = {"batch_rows": 64, "dim": 4, "bottom_mlp": [8], "top_mlp": [8], "deep": True, "linear": False, "passes": 1,
           "embedding_learning_rate": 0.05, "dense_learning_rate": 0.003, "events_per_epoch": 1000}  # fmt: skip


class Command:
    """A running ``headrace train`` of a job."""

    def __init__(self, folder: Path, *options: str, **settings: int) -> None:
        (folder / "options.json").write_text(json.dumps({**OPTIONS, **settings}))
        self.run_dir = folder / "run"
        arguments = ["train", "ctr", "--home", str(folder / "home"), "--run-dir", str(self.run_dir), "--json",
                     "--config", str(folder / "options.json"), "--hosts", "1", "--poll-secs", "0.3", *options]  # fmt: skip
        self.errors = folder / "errors.txt"
        with open(self.errors, "a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def status(self):
        """The status of the job; None while its controller does not answer."""
        files = JobFiles(self.run_dir)
        try:
            client = ControllerClient.of_run(files, job=JobSpec.read(files).job)
            try:
                return client.status()
            finally:
                client.close()
        except HeadraceError:
            return None

    def wait_until(self, holds, secs: float = PATIENCE_SECS) -> None:
        """Wait for a status."""
        end = time.monotonic() + secs
        while time.monotonic() < end:
            found = self.status()
            if found is not None and holds(found):
                return
            assert self.process.poll() is None, self.errors.read_text()
            time.sleep(0.1)
        raise AssertionError(self.status())

    def end(self, number: int | None = None):
        """The report, after a signal if one is given."""
        if number is not None:
            self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=PATIENCE_SECS)
        assert self.process.returncode == 0, self.errors.read_text()
        return json.loads(out)


@pytest.fixture
def folder(tmp_path):
    make_warehouse(tmp_path, hours=3, rows=700).close()
    return tmp_path


def test_the_report_is_that_of_one_process(folder):
    """With commits by events, too, which change no epoch of the report."""
    report = Command(folder, "--readers", "2", "--epoch-events", "300", staleness=2).end()
    assert report["exact"] is True
    assert set(report["staleness"]) == {"0", "1", "2"}
    assert newest(folder / "run").epochs_done >= 5
    assert report["events_this_time"] == 2100
    assert [one["epoch"] for one in report["epochs"]] == [0, 1]
    again = Command(folder, staleness=2).end()
    assert (again["events_this_time"], again["exact"], again["staleness"]) == (0, True, {})


def test_new_partitions_are_trained_as_they_land(folder):
    """The history is trained by two hosts, what comes later by one."""
    command = Command(folder, "--follow", "--hosts", "2", "--caught-up-hosts", "1")
    command.wait_until(lambda status: len(status.live(RoleKind.HOST)) == 2)
    command.wait_until(
        lambda status: status.state is JobState.WAITING_FOR_DATA and len(status.live(RoleKind.HOST)) == 1
    )
    first = command.status()
    assert first.phase == "caught-up"
    write_partition(folder / "log", 3, events(500, seed=3))
    with make_warehouse_again(folder) as warehouse:
        register_table(warehouse, "log", str(folder / "log"))
    command.wait_until(
        lambda status: status.commit_epochs > first.commit_epochs and status.state is JobState.WAITING_FOR_DATA
    )
    assert command.status().staleness_secs is not None
    write_partition(folder / "log", 1, events(70, seed=9), name="late.parquet")
    with make_warehouse_again(folder) as warehouse:
        register_table(warehouse, "log", str(folder / "log"))
    second = command.status().commit_epochs
    command.wait_until(lambda status: status.commit_epochs > second and status.state is JobState.WAITING_FOR_DATA)
    report = command.end(signal.SIGINT)
    assert (report["exact"], report["counted"]) == (True, 2100 + 500 + 70)
    history = newest_history(report["run_dir"])  # of two hosts, then of one
    assert sum(column(history, "events")) == 2100 + 500 + 70
    assert history.first_step == 0


def make_warehouse_again(folder):
    from tests.warehouse.scenes import FREE_READS
    from warehouse import Warehouse
    from warehouse.config import WarehouseConfig

    return Warehouse.open(WarehouseConfig(home=str(folder / "home"), rates=FREE_READS))


def test_a_job_waits_for_its_memos_with_its_controller_alone(tmp_path):
    make_warehouse(tmp_path, hours=2, rows=700, memoize=False).close()
    command = Command(tmp_path, "--wait-for-memos")
    command.wait_until(lambda status: status.state is JobState.HELD)
    command.wait_until(lambda status: not status.members)
    with make_warehouse_again(tmp_path) as warehouse:
        work(warehouse)
    report = command.end()
    assert (report["exact"], report["events_this_time"]) == (True, 1400)


@pytest.mark.soak
def test_a_notice_commits_and_the_same_command_goes_on(folder):
    command = Command(folder, "--epoch-secs", "1000")
    command.wait_until(
        lambda status: (
            status.state is JobState.TRAINING and any(one.progress and one.progress.events for one in status.members)
        )
    )
    report = command.end(signal.SIGTERM)
    committed = epochs_committed(command.run_dir)
    again = Command(folder).end()
    assert report["events_this_time"] + again["events_this_time"] == 2100
    assert again["exact"] is True
    assert epochs_committed(command.run_dir) >= max(committed, 1)


def test_no_process_outlives_the_command(folder):
    command = Command(folder, "--follow")
    command.wait_until(lambda status: status.state is JobState.WAITING_FOR_DATA)
    processes = [command.status().process_id]
    command.process.kill()
    command.process.wait()
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{one}") for one in processes) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{one}") for one in processes)
    assert Command(folder).end()["exact"] is True
