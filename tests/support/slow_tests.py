"""Slow tests within a time: a plugin of pytest for checks that must end.

``--slow-secs N`` runs slow tests last, and begins none later than N seconds after the start; what is left out is reported as skipped. Their files
come in an order that depends on the commit, so that other ones are left out by each.
"""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Sequence
from typing import Protocol

import pytest

_STARTED = pytest.StashKey[float]()


class _Test(Protocol):
    """What the order of tests depends on."""

    @property
    def nodeid(self) -> str:
        """The file of a test and its name."""


def slow_last(tests: Sequence[tuple[_Test, bool]], commit: str) -> list[_Test]:
    """Tests in their order, then those that are slow, file by file in an order that the commit gives."""

    def place(test: _Test) -> bytes:
        return hashlib.sha256(f"{commit} {test.nodeid.partition('::')[0]}".encode()).digest()

    fast = [test for test, is_slow in tests if not is_slow]
    return [*fast, *sorted((test for test, is_slow in tests if is_slow), key=place)]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the option."""
    parser.addoption("--slow-secs", type=float, help="run slow tests last, and begin none after so many seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Note when the tests began."""
    config.stash[_STARTED] = time.monotonic()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put slow tests last."""
    if config.option.slow_secs is not None:
        items[:] = slow_last([(one, one.get_closest_marker("slow") is not None) for one in items], _commit(config))  # type: ignore[assignment]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a slow test for which there is no time."""
    most_secs = item.config.option.slow_secs
    if most_secs is None or item.get_closest_marker("slow") is None:
        return
    if time.monotonic() - item.config.stash[_STARTED] > most_secs:
        pytest.skip(f"slow tests begin within {most_secs:g} s; make test-all runs all of them")


def _commit(config: pytest.Config) -> str:
    """The commit of the tests; empty outside a repository."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=config.rootpath, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()
