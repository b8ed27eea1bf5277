"""The process of a controller, beside what it controls."""

from __future__ import annotations

import json
from pathlib import Path

from trainer.job.control.job_files import JobFiles
from trainer.job.launch.controller_process import run_controller
from trainer.job.launch.job_spec import FORMAT, JobSpec
from trainer.scheduling.job import JobSettings
from trainer.scheduling.orders import Commit


def test_a_job_of_an_earlier_release_is_read(tmp_path):
    """It says nothing of hot rows and of encodings between hosts."""
    files = JobFiles(tmp_path)
    JobSpec(FORMAT, "job", JobSettings(release="test"), None, str(tmp_path / "home")).write(files)
    document = json.loads(files.spec.read_bytes())
    del document["hot_rows"], document["wire_values"]
    files.spec.write_text(json.dumps(document))
    found = JobSpec.read(files)
    assert (found.hot_rows, found.wire_values) == ({}, "float32")


def test_a_controller_removes_what_killed_processes_have_left(tmp_path):
    """Unfinished checkpoints, and parts of attempts that were given up: at a launch all, above which its attempts are; later not those of attempts to come."""
    files = JobFiles(tmp_path)
    files.make_token()
    JobSpec(FORMAT, "job", JobSettings(release="test"), None, str(tmp_path / "home")).write(files)
    checkpoints = tmp_path / "checkpoints"

    def make(*names: str) -> list[Path]:
        folders = [checkpoints / name for name in names]
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / "array-0000.npy").write_bytes(b"left")
        return folders

    given_up = make(".tmp-epoch-000001-1", "parts/attempt-000002/host-0", "parts/attempt-000009/server-0")
    run_controller(files, newest=Commit(0, 2, 0), on_signals=lambda end: end())
    assert [one for one in given_up if one.exists()] == []
    given_up, to_come = make("parts/attempt-000009/host-0", "parts/attempt-000010/host-0")
    run_controller(files, on_signals=lambda end: end())
    assert not given_up.exists()
    assert to_come.exists()
