"""The faults themselves, where there is nothing to strike at."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import havoc as module
from tests.chaos.havoc import Havoc


@pytest.fixture
def havoc(tmp_path: Path) -> Havoc:
    return Havoc(tmp_path, tmp_path / "clock", random.Random(1), {}, full_disks=False)


@pytest.mark.parametrize("fault", ["kill_worker", "kill_child", "pause_worker"])
def test_a_fault_without_a_worker_strikes_nothing(havoc: Havoc, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECS", 0.0)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    havoc.workers.add(ended.pid)
    getattr(havoc, fault)()
    assert havoc.workers == set()


def test_a_worker_that_starts_meanwhile_is_not_forgotten(havoc: Havoc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread adds it while the states of the others are read."""
    newer = os.getppid()

    def state_of(_: int) -> str:
        havoc.workers.add(newer)
        return "S"

    monkeypatch.setattr(module, "_state", state_of)
    havoc.workers.add(os.getpid())
    assert set(havoc._alive()) == {os.getpid(), newer} == havoc.workers
