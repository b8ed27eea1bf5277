"""A process that is killed at any line of writing a part, publishing or removing commits loses no commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_SECS


def kills(kind: str, folder: Path, step: int) -> int:
    command = [sys.executable, "-m", "tests.trainer.checkpoints.killing", kind, str(folder), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECS)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["publish", "part", "retention", "shards", "partial"])
def test_a_process_killed_at_some_lines_loses_nothing(tmp_path: Path, kind: str) -> None:
    assert kills(kind, tmp_path, 13) > 100


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("kind", ["publish", "part", "retention", "shards", "partial"])
def test_a_process_killed_at_every_line_loses_nothing(tmp_path: Path, kind: str) -> None:
    assert kills(kind, tmp_path, 1) > 100
