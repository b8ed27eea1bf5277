"""Slow tests run last, and only within their time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT
from tests.support.slow_tests import slow_last

SUITE = """
import time
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_slow(number):
    time.sleep(0.2)

def test_fast():
    pass
"""


def run(folder: Path, *options: str) -> str:
    """The report of a small suite of three slow tests of 0.2 s each, and a fast one."""
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes long\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.slow_tests",
        "-p",
        "no:cacheprovider",
        "-v",
        "-rs",
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def test_slow_tests_come_last_and_end_with_their_time(tmp_path):
    shown = run(tmp_path, "--slow-secs", "0.1")
    assert shown.index("::test_fast") < shown.index("::test_slow")
    assert "make test-all runs all of them" in shown
    assert "test_slow[2] SKIPPED" in shown


@pytest.mark.medium
def test_with_time_for_all_none_is_left_out(tmp_path):
    assert "4 passed" in run(tmp_path, "--slow-secs", "1000")


@pytest.mark.medium
def test_without_the_option_the_order_stays(tmp_path):
    shown = run(tmp_path)
    assert shown.index("::test_slow") < shown.index("::test_fast")
    assert "4 passed" in shown


def test_each_commit_has_an_order_of_files_and_keeps_that_within_a_file():
    names = [f"{file}.py::test_{number}" for file in "abcdefgh" for number in range(3)]
    tests = [(SimpleNamespace(nodeid=name), not name.endswith("_1")) for name in names]
    orders = {tuple(one.nodeid for one in slow_last(tests, commit)) for commit in ("1", "2", "3", "1")}
    assert len(orders) == 3
    for order in orders:
        assert sorted(order) == sorted(names)
        assert list(order[:8]) == [name for name in names if name.endswith("_1")]
        slow = [name.partition("::") for name in order[8:]]
        assert all(
            first[0] == second[0] and first[2] < second[2] for first, second in zip(slow[::2], slow[1::2], strict=True)
        )
