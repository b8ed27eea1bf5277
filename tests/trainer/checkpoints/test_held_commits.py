"""A commit that is read is not removed, and a killed reader keeps none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_SECS
from tests.trainer.serving.deltas.histories import history, run_files
from trainer.checkpoints.held_commits import HELD, held_commits, hold_commit
from trainer.checkpoints.run_files import newest_first

COMMITS = history(70, 4)

PROGRAM = """
import sys, time
from pathlib import Path
from trainer.checkpoints.held_commits import hold_commit
with hold_commit(Path(sys.argv[1]), 1):
    print("held", flush=True)
    time.sleep(1000)
"""


def test_any_number_of_readers_hold_a_commit(tmp_path: Path) -> None:
    assert held_commits(tmp_path) == frozenset()
    with hold_commit(tmp_path, 3):
        with hold_commit(tmp_path, 3), hold_commit(tmp_path, 5):
            assert held_commits(tmp_path) == {3, 5}
        assert held_commits(tmp_path) == {3}
    assert held_commits(tmp_path) == frozenset()
    assert list((tmp_path / HELD).iterdir()) == []


def test_a_killed_reader_holds_nothing(tmp_path: Path) -> None:
    reader = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "held\n"
    assert held_commits(tmp_path) == {1}
    reader.kill()
    reader.wait(PATIENCE_SECS)
    assert held_commits(tmp_path) == frozenset()


@pytest.mark.parametrize("hosts", [0, 2])
def test_the_removal_of_old_commits_passes_a_held_one(tmp_path: Path, hosts: int) -> None:
    COMMITS.commit(tmp_path, 1, keep=1, hosts=hosts)
    with hold_commit(tmp_path, 1):
        COMMITS.commit(tmp_path, 2, keep=1, hosts=hosts)
        COMMITS.commit(tmp_path, 3, keep=1, hosts=hosts)
        assert newest_first(run_files(tmp_path)) == ["epoch-000003", "epoch-000001"]
        if hosts:
            assert (tmp_path / "checkpoints/parts/attempt-000001").exists()
    COMMITS.commit(tmp_path, 4, keep=1, hosts=hosts)
    assert newest_first(run_files(tmp_path)) == ["epoch-000004"]


def test_a_folder_that_may_not_be_written_holds_nothing(tmp_path: Path) -> None:
    with hold_commit(tmp_path / "absent", 1):
        assert held_commits(tmp_path / "absent") == frozenset()
