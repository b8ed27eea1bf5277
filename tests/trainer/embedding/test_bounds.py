"""The engine's kernels under checks of every position that they read and write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SUITES = ("test_cpu_engine.py", "test_optimizers.py", "test_engine.py", "test_snapshot.py", "partitioned")


@pytest.mark.slow
def test_the_engine_stays_inside_its_arrays(tmp_path):
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
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


def test_the_checks_find_a_wrong_position(tmp_path):
    program = """
import numpy as np
from numba import njit
from trainer.embedding.cpu.vectors import load, splat, store
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
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
