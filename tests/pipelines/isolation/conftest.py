"""Child processes, all of which must have exited at the end of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipelines.isolation.processes import ChildProcesses
from tests.pipelines.isolation.scenes import eventually, is_running


@contextmanager
def opened() -> Iterator[ChildProcesses]:
    processes = ChildProcesses(4)
    yield processes
    pids = processes.running
    processes.close()
    assert eventually(lambda: not any(is_running(pid) for pid in pids)), "children outlive their parent's word"


@pytest.fixture(scope="module")
def processes() -> Iterator[ChildProcesses]:
    """For the tests of a module together: a server takes a second to start."""
    with opened() as shared:
        yield shared


@pytest.fixture
def own_processes() -> Iterator[ChildProcesses]:
    """For one test."""
    with opened() as own:
        yield own
