"""Runs and holds that are read again when their files have changed, and not before."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from headrace.runs import known_runs
from headrace.runs.known_runs import KnownHolds, KnownRuns
from tests.trainer.job.control.serving import serving
from tests.trainer.job.launch.held_jobs import REASON, hold, make_run
from trainer.job.launch.holds import find_hold, release_hold
from trainer.scheduling.holds import describe_error
from transforms.errors import HeadraceError, NotFound


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders whose logs were read."""
    read: list[str] = []

    def find(files):
        read.append(files.root.name)
        return find_hold(files)

    monkeypatch.setattr(known_runs, "find_hold", find)
    return read


def test_a_log_is_read_again_when_it_has_changed(tmp_path: Path, counted: list[str]) -> None:
    held, free = hold(tmp_path / "held"), make_run(tmp_path / "free")
    known = KnownHolds()
    for _ in range(3):
        assert known.find(held).reason == REASON
        assert known.find(free) is None
    assert counted.count("held") == 1
    release_hold(held)
    assert known.find(held) is None
    with serving(tmp_path / "held") as found:
        found.client.plan_failed(describe_error(ValueError("again")))
        assert "again" in known.find(held).reason
    held.log.write_bytes(b"no log\n")
    for _ in range(2):
        with pytest.raises(HeadraceError):
            known.find(held)


def test_the_least_lately_used_is_forgotten(
    tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_runs, "MOST_KNOWN", 2)
    files = [hold(tmp_path / name) for name in "abc"]
    known = KnownHolds()
    for k in (0, 1, 0, 2, 0, 1):
        known.find(files[k])
    assert counted == ["a", "b", "c", "b"]


def test_a_run_is_read_again_when_its_commits_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(known_runs, "read_run", lambda folder: read.append(folder) or object())
    commits = tmp_path / "checkpoints"
    (commits / "epoch-000001").mkdir(parents=True)
    os.utime(commits, (1_000.0, 1_000.0))
    known, folder = KnownRuns(), str(tmp_path)
    assert known.read(folder) is known.read(folder)
    (commits / "epoch-000002").mkdir()
    os.utime(commits, (2_000.0, 2_000.0))
    known.read(folder)
    assert len(read) == 2
    now = time.time()
    os.utime(commits, (now, now))
    known.read(folder)
    known.read(folder)
    assert len(read) == 4, "a folder that has just changed may change again at the same moment"
    shutil.rmtree(commits)
    known.read(folder)
    assert len(read) == 5


def test_a_folder_without_commits_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        KnownRuns().read(str(tmp_path))
