"""The list of failed tests that ``.ci/run`` prints last."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

_TESTS = """
import pytest

@pytest.fixture
def broken():
    raise OSError("no disk")

def test_passes(): pass
def test_fails(): assert 1 == 2, "one is\\n not two"
def test_cannot_begin(broken): pass
def test_ends_its_process():
    import os
    os._exit(3)
"""


@pytest.mark.medium
def test_failures_of_tests_fixtures_and_processes_are_listed(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(_TESTS)
    (tmp_path / "test_other.py").write_text("import no_such_module\n")
    listed = tmp_path / "failed"
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "-p", "tests.support.failed_tests"]
    command += ["--rootdir", str(tmp_path), "-c", os.devnull, f"--failures-to={listed}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(file: str) -> dict[str, str]:
        """What is listed after a run, by the name of the test."""
        given = [*command, str(tmp_path / file)]
        ended = subprocess.run(given, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode != 0, ended.stdout
        return dict(line.split(" ", 1) for line in listed.read_text().splitlines())

    found = {name.partition("::")[2]: why for name, why in run("test_some.py").items()}
    crash = found.pop("test_ends_its_process")
    assert "crashed" in crash
    assert found == {"test_fails": "call: AssertionError: one is", "test_cannot_begin": "setup: OSError: no disk"}
    (broken,) = run("test_other.py")
    assert broken.endswith("test_other.py")
