"""``headrace train --servers`` beside a process of the same machine without the token, which tries everything: no bit differs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.headrace.test_served_training import OPTIONS, assert_equal_runs, served  # noqa: F401 (a fixture)
from tests.support.neighbour import ATTEMPTS, TRIED
from tests.support.processes import PATIENCE_SECS
from trainer.job.control.job_files import JobFiles
from trainer.job.launch import local_servers
from trainer.job.launch.local_servers import LocalServers


@contextmanager
def neighbour(found: dict[str, int]) -> Iterator[subprocess.Popen]:
    """A process that tries everything on the services of this process's children until the block ends; ``found`` gets what it got."""
    command = [sys.executable, "-m", "tests.support.neighbour", str(os.getpid())]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
            answer, _ = running.communicate("end\n", timeout=PATIENCE_SECS)
            found.update(json.loads(answer))
        finally:
            running.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [("--servers", 2), ("--servers", 2, "--embedding-workers", 1), ("--servers", 2, "--hosts", 2, "--readers", 1)],
    ids=["in one process", "with an embedding worker", "in a job"],
)
def test_a_process_without_the_token_changes_and_learns_nothing(served, tmp_path, monkeypatch, options):  # noqa: F811
    monkeypatch.setattr(local_servers, "_START_SECS", PATIENCE_SECS)  # also on a machine that does much else
    served.options.write_text(json.dumps({**OPTIONS, "passes": 10}))
    arguments = ("train", "first", "--config", served.options, "--json", *options)
    served(*arguments, "--run-dir", tmp_path / "alone")
    found: dict[str, int] = {}
    with neighbour(found) as other:
        _wait_for_attempts(monkeypatch, other)
        report = served(*arguments, "--run-dir", tmp_path / "beside").json
    for name in ATTEMPTS:
        assert found.get(f"{name}: ERROR", 0) > 0, found
    assert found["the status was refused"] > 0
    assert {kind.partition(": ")[2] for kind in found if ": " in kind} <= {"ERROR", "ended"}, found
    assert "the status was read" not in found
    assert report["exact"] is True
    assert_equal_runs(tmp_path / "alone", tmp_path / "beside")
    _assert_secret(tmp_path / "beside")


def _wait_for_attempts(monkeypatch: pytest.MonkeyPatch, other: subprocess.Popen) -> None:
    """Training begins only once the other process has tried everything on the servers: on a busy machine, a short run would end before."""
    enter = LocalServers.__enter__

    def start(self: LocalServers) -> LocalServers:
        entered = enter(self)
        if not waited:
            waited.append(True)
            assert other.stdout is not None
            assert other.stdout.readline() == f"{TRIED}\n"
        return entered

    waited: list[bool] = []
    monkeypatch.setattr(LocalServers, "__enter__", start)


def _assert_secret(run: Path) -> None:
    """The token is this user's alone, and in no log."""
    files = JobFiles(run)
    assert stat.S_IMODE(files.token.stat().st_mode) == 0o600
    logs = [path.read_text(errors="replace") for path in (run / "logs").glob("*.log")]
    assert logs
    assert not any(files.read_token() in text for text in logs)
    assert not any("Traceback" in text for text in logs)
    assert any("the stream of a client was refused: the token must be that of the servers" in text for text in logs)
