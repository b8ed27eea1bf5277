"""The engine's kernels under checks of every position that they read and write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.kept_kernels import with_bounds_checks

SUITES = (
    "test_cpu_engine.py",
    "test_optimizers.py",
    "test_engine.py",
    "test_row_widths.py",
    "test_snapshot.py",
    "test_undo_log.py",
    "test_whole_messages.py",
    "stores/hashed",
    "routes/partitioned",
    "routes/servers/test_placed_rows.py",
)


@pytest.mark.slow
def test_the_engine_stays_inside_its_arrays():
    environment = with_bounds_checks(os.environ)
    suites = [str(Path(__file__).parent / name) for name in SUITES]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-m",
        "not slow",
        "--hypothesis-profile",
        "quick",
        *suites,
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.medium
def test_the_checks_cover_vectors_of_every_width():
    program = """
import numpy as np
from numba import njit
from trainer.tables.kernels.vectors import item, load_as, splat1, splat4, splat8, store
def writer(splat):
    @njit
    def write(out, at):
        store(out, at, load_as(out, at, splat(np.float32(0.0))) + splat(np.float32(1.0)))
    return write
@njit
def read(out, at):
    item(out, at)
def is_refused(function, out, at):
    try:
        function(out, at)
    except IndexError:
        return True
    return False
for lanes, splat in ((8, splat8), (4, splat4), (1, splat1)):
    write, out = writer(splat), np.zeros(20, np.float32)
    write(out, 20 - lanes)
    assert out.tolist() == [0.0] * (20 - lanes) + [1.0] * lanes
    assert is_refused(write, out, 21 - lanes) and is_refused(write, out, -1), lanes
assert not is_refused(read, out, 19) and is_refused(read, out, 20) and is_refused(read, out, -1)
"""
    environment = with_bounds_checks(os.environ)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.medium
def test_the_checks_find_a_wrong_position():
    program = """
import numpy as np
from numba import njit
from trainer.tables.kernels.vectors import load, splat, store
@njit
def write(out, at):
    store(out, at, load(out, at) + splat(np.float32(1.0)))
out = np.zeros(20, np.float32)
write(out, 4)
assert out.tolist() == [0.0] * 4 + [1.0] * 16
for at in (5, -1):
    try:
        write(out, at)
    except IndexError:
        continue
    raise SystemExit(f"position {at} was not refused")
"""
    environment = with_bounds_checks(os.environ)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
