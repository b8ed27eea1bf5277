"""Preemption notices of a training job by every source: the job commits, leaves with status 0, and the same command goes on."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.cli.main import run
from tests.headrace.conftest import UNTRIED
from tests.support.metadata_server import MetadataServer
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.launch.jobs import make_warehouse
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.job_spec import JobSpec
from trainer.scheduling.transitions import JobState
from transforms.errors import HeadraceError

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
ROWS, HOURS = 2000, 2


class Scene:
    """A warehouse, and a training job on it that lasts."""

    def __init__(self, folder: Path, passes: int) -> None:
        self.folder, self.run_dir = folder, folder / "run"
        with make_warehouse(folder, hours=HOURS, rows=ROWS):
            pass
        config = {**UNTRIED, "batch_rows": 32, "passes": passes, "deterministic": True}
        (folder / "training.json").write_text(json.dumps(config))

    def arguments(self, *more: str) -> list[str]:
        return ["train", "ctr", "--home", str(self.folder / "home"), "--run-dir", str(self.run_dir), "--config",
                str(self.folder / "training.json"), "--hosts", "1", "--readers", "1", *map(str, more)]  # fmt: skip

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        log = open(self.folder / "output", "ab")  # noqa: SIM115
        return subprocess.Popen([sys.executable, "-m", "headrace", "--record", str(self.folder / "result"), *self.arguments(*more)],
                                stdout=log, stderr=log)  # fmt: skip

    def status(self):
        try:
            files = JobFiles(self.run_dir)
            client = ControllerClient.of_run(files, job=JobSpec.read(files).job)
            try:
                return client.status()
            finally:
                client.close()
        except HeadraceError:
            return None

    def until_training(self, process) -> None:
        """Wait until the job trains an epoch in which events were trained."""
        limit = time.monotonic() + 5 * PATIENCE_SECS
        while True:
            assert process.poll() is None, (self.folder / "output").read_text()
            assert time.monotonic() < limit, self.status()
            status = self.status()
            if status is not None and status.state is JobState.TRAINING and any(one.progress and one.progress.events for one in status.members):  # fmt: skip
                return
            time.sleep(0.1)

    def left(self, process) -> dict:
        assert process.wait(5 * PATIENCE_SECS) == 0, (self.folder / "output").read_text()
        return json.loads((self.folder / "result").read_text())


def post(url: str, token: str) -> int:
    connection = http.client.HTTPConnection(url, timeout=PATIENCE_SECS)
    connection.request("POST", "/notice", body=b'{"grace_secs": 60}', headers={"Authorization": f"Bearer {token}"})
    return connection.getresponse().status


@pytest.mark.soak
def test_the_job_leaves_at_each_notice(tmp_path):
    scene = Scene(tmp_path, passes=255)
    trained = []

    def preempted(process) -> None:
        found = scene.left(process)
        assert not found["finished"], "the job was over before the notice"
        trained.append(found["events_this_time"])
        assert scene.status() is None, "all processes have ended"

    process = scene.start("--grace-secs", 60)
    scene.until_training(process)
    process.send_signal(signal.SIGTERM)
    preempted(process)
    assert trained[0] > 0, "the epoch that had begun was committed"

    process = scene.start()
    scene.until_training(process)
    assert run(["preempt", str(scene.run_dir), "--grace", "60"]) == 0
    preempted(process)

    process = scene.start("--notice-file", scene.folder / "notice")
    scene.until_training(process)
    (scene.folder / "notice").write_text("60")
    preempted(process)
    (scene.folder / "notice").unlink()

    process = scene.start("--notice-http", "127.0.0.1:0")
    scene.until_training(process)
    said = (scene.folder / "output").read_text().rpartition("POST http://")[2].partition("/")[0]
    assert post(said, "wrong") == 401
    assert post(said, JobFiles(scene.run_dir).read_token()) == 204
    preempted(process)

    metadata = MetadataServer()
    process = scene.start("--notice-metadata", metadata.url, "--grace-secs", 60)
    scene.until_training(process)
    metadata.preempted.set()
    preempted(process)
    metadata.close()
    assert run(["preempt", str(scene.run_dir)]) == 6, "no controller runs"


def test_no_event_is_lost_or_repeated_by_notices_of_the_job_and_of_roles(tmp_path):
    passes = 6
    scene = Scene(tmp_path, passes)
    process = scene.start()
    scene.until_training(process)
    process.send_signal(signal.SIGTERM)
    found = scene.left(process)
    assert not found["finished"]
    process = scene.start("--epoch-secs", 1)
    scene.until_training(process)
    attempt = scene.status().attempt
    assert run(["preempt", str(scene.run_dir), "--role", "host:h9"]) == 4
    assert run(["preempt", str(scene.run_dir), "--role", "host"]) == 2
    for kind in ("host", "reader"):
        for one in Path("/proc").glob("[0-9]*/cmdline"):
            words = read_words(one)
            if words[2:5] == ["headrace", "role", kind] and str(scene.run_dir) in words:
                os.kill(int(one.parent.name), signal.SIGTERM)
    limit = time.monotonic() + 5 * PATIENCE_SECS
    while process.poll() is None and ((status := scene.status()) is None or status.attempt <= attempt):
        assert time.monotonic() < limit
        time.sleep(0.1)
    run(["preempt", str(scene.run_dir), "--role", "host:h0"])  # refused if the job is over, or the host is not back
    found = scene.left(process)
    assert found["finished"]
    assert found["exact"]
    assert found["counted"] == ROWS * HOURS
    assert found["fewest_times"] == found["most_times"] == passes


def read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split("\0")
    except OSError:
        return []
