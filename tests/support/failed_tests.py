"""``--failures-to=FILE``: a plugin of pytest that lists what failed, a line each with its reason, after all other output.

``.ci/run`` prints the file last, where a reader of a long log looks first. Without ``=``, pytest takes the file for one of tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_MOST_CHARACTERS = 160


def failure_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The file and name of a test, and the first line of why it failed."""
    crash = getattr(report.longrepr, "reprcrash", None)
    why = crash.message if crash is not None else str(report.longrepr)
    first = why.strip().partition("\n")[0]
    return f"{report.nodeid.removeprefix('tests/')} {report.when}: {first}"[:_MOST_CHARACTERS]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the option."""
    parser.addoption("--failures-to", type=Path, help="a file that gets a line for each failed test")


def pytest_configure(config: pytest.Config) -> None:
    """List failures where the option is given, in the process that starts the others."""
    if config.option.failures_to is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_List(config.option.failures_to))


class _List:
    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._add(report)

    def _add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            with self._file.open("a") as lines:
                lines.write(failure_line(report) + "\n")
