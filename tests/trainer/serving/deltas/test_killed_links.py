"""A process that is killed at any line of writing or applying links leaves the chain and what is served whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_SECS

#: For each kind, the steps between the lines of the short test.
STEPS = {"full": 61, "delta": 71, "rows": 61, "saved": 199}


def kills(kind: str, folder: Path, step: int) -> int:
    command = [sys.executable, "-m", "tests.trainer.serving.deltas.killing_links", kind, str(folder), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * PATIENCE_SECS)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STEPS)
def test_a_process_killed_at_some_lines_leaves_everything_whole(tmp_path: Path, kind: str) -> None:
    assert kills(kind, tmp_path, STEPS[kind]) > 400


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("kind", STEPS)
def test_a_process_killed_at_every_line_leaves_everything_whole(tmp_path: Path, kind: str) -> None:
    assert kills(kind, tmp_path, 1) > 400
