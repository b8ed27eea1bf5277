"""What a parent measures of a child and of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.fragments.progress_cell import Phase, Position, ProgressCell, new_cell_file
from pipelines.isolation.limits import LEAST_MEMORY_BYTES, IsolationLimits, machine_memory_bytes
from pipelines.isolation.watch import StallClock, memory_of
from transforms.errors import InputError


def test_a_place_is_read_as_it_was_written() -> None:
    fd = new_cell_file()
    child, parent = ProgressCell.open(fd), ProgressCell.open(fd)
    os.close(fd)
    assert parent.position == Position(Phase.IDLE)
    child.enter_step(7)
    assert parent.position == Position(Phase.RUNNING, 7, None)
    child.select_component(3)
    child.enter(Phase.COMPILING)
    assert parent.position == Position(Phase.COMPILING, 0, 3)
    child.select_component(None)
    child.enter_step(10**9)
    assert parent.position == Position(Phase.RUNNING, 2**20 - 1, None), "more steps than any plan has"
    for cell in (child, parent):
        cell.close()


def test_every_write_changes_the_value() -> None:
    cell = ProgressCell()
    values = set()
    for _ in range(1000):
        cell.enter_step(5)
        values.add(cell.value)
    assert len(values) == 1000


def test_a_stall_is_staying_in_one_step_of_a_plan() -> None:
    cell = ProgressCell()
    clock = StallClock(cell, 10.0, now=0.0)
    cell.enter_step(1)
    assert not any(clock.is_stalled(secs) for secs in range(10))
    cell.enter_step(2)
    assert not any(clock.is_stalled(secs) for secs in range(10, 21)), "from 10, when the second step was first seen"
    assert clock.is_stalled(20.1)


def test_time_without_a_measurement_does_not_count() -> None:
    cell = ProgressCell()
    cell.enter_step(1)
    clock = StallClock(cell, 10.0, now=0.0)
    assert not clock.is_stalled(1.0)
    assert not clock.is_stalled(1e6), "both stood still"
    assert not clock.is_stalled(1e6 + 4)
    assert clock.is_stalled(1e6 + 4.1)


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.READING, Phase.LOADING, Phase.WRITING])
def test_what_waits_for_others_is_not_held_to_a_time(phase: Phase) -> None:
    cell = ProgressCell()
    cell.enter(phase)
    clock = StallClock(cell, 10.0, now=0.0)
    assert not clock.is_stalled(1e6)
    cell.enter(Phase.COMPILING)
    assert not any(clock.is_stalled(1e6 + secs) for secs in range(1, 12))
    assert clock.is_stalled(1e6 + 12)


MEMORY_OF_A_NEW_ARRAY = """
import os
import numpy as np
from pipelines.isolation.watch import memory_of
before = memory_of(os.getpid())
held = np.ones(50_000_000 // 8)
print(memory_of(os.getpid()) - before)
"""


def test_memory_is_what_a_process_holds_for_itself() -> None:
    """In a process of its own: one that ran other tests has freed memory that a new array would take first."""
    run = subprocess.run([sys.executable, "-c", MEMORY_OF_A_NEW_ARRAY], capture_output=True, text=True, check=True)
    assert 45_000_000 < int(run.stdout) < 100_000_000


def test_a_process_that_is_not_there_holds_nothing() -> None:
    assert memory_of(2**30) is None


@pytest.mark.parametrize(("memory", "stall"), [(1000, 1.0), (-1, 1.0), (0, 0.0), (0, -1.0), (0, float("nan")),
                                               (0, float("inf"))])  # fmt: skip
def test_limits_that_make_no_sense_are_refused(memory: int, stall: float) -> None:
    with pytest.raises(InputError):
        IsolationLimits(memory, stall)


def test_without_a_limit_children_share_the_machine() -> None:
    machine = machine_memory_bytes()
    shares = [IsolationLimits().on_this_machine(count).memory_bytes for count in (1, 4)]
    assert machine / 2 < shares[0] < machine
    assert shares[1] == pytest.approx(max(shares[0] / 4, LEAST_MEMORY_BYTES), rel=1e-6)
    assert IsolationLimits().on_this_machine(10**6).memory_bytes == LEAST_MEMORY_BYTES
    given = IsolationLimits(2**30, 5.0)
    assert given.on_this_machine(4) == given


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/app/inner\n", {"app/memory.max": "500000000\n", "app/inner/memory.max": "max\n"}, 500_000_000),
        ("0::/\n", {"memory.max": "300000000\n"}, 300_000_000),
        ("5:cpu,memory:/job\n", {"memory/job/memory.limit_in_bytes": "200000000\n"}, 200_000_000),
        ("5:memory:/job\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("0::/gone\n", {}, None),
    ],
)
def test_a_containers_limit_is_found(tmp_path: Path, own: str, files: dict[str, str], expected: int | None) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine_memory_bytes(tmp_path / "cgroup", tmp_path / "own") == (expected or physical)
    assert machine_memory_bytes(tmp_path / "none", tmp_path / "neither") == physical
