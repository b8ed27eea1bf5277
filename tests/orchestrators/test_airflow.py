"""The example for Airflow under its real scheduler and LocalExecutor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.orchestrators.conftest import DAYS, Daily, need
from tests.orchestrators.install import ROOT, programs
from tests.support.processes import PATIENCE_SECS, end, free_port, start, wait_until

pytestmark = pytest.mark.orchestrators

EXAMPLE = ROOT / "examples" / "airflow" / "headrace_daily.py"

_STATUSES = f"""
import importlib.util, os
spec = importlib.util.spec_from_file_location("headrace_daily", {str(EXAMPLE)!r})
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
for status in (0, 2, 3, 5, 6, 7, 70, 75, 143):
    os.environ["HEADRACE_COMMAND"] = "/bin/sh"
    try:
        example.headrace("-c", f"exit {{status}}")
        print(status, "ok")
    except Exception as error:
        print(status, type(error).__name__)
"""


def settings(daily: Daily) -> dict[str, str]:
    """The variables of Airflow: SQLite, one worker of the LocalExecutor."""
    port = free_port()
    given = {
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": "1",
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "API__HOST": "127.0.0.1",
        "API__PORT": str(port),
        "API__WORKERS": "1",
        "API_AUTH__JWT_SECRET": "a secret of this test alone, and long",
    }
    home = daily.folder / "airflow"
    (home / "dags").mkdir(parents=True)
    text = EXAMPLE.read_text(encoding="utf-8")
    assert "timedelta(minutes=2)" in text
    (home / "dags" / EXAMPLE.name).write_text(
        text.replace("timedelta(minutes=2)", "timedelta(seconds=2)"), encoding="utf-8"
    )
    path = f"{programs('airflow')}{os.pathsep}{os.environ['PATH']}"
    return {"AIRFLOW_HOME": str(home), "PATH": path, **{f"AIRFLOW__{name}": value for name, value in given.items()}}


@contextmanager
def running(daily: Daily, variables: dict[str, str]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The scheduler, what reads the DAGs, and the server that tasks report to."""
    processes = {}
    try:
        for name in ("api-server", "dag-processor", "scheduler"):
            words = [str(programs("airflow") / "airflow"), name]
            processes[name] = start(words, daily.folder / f"{name}.txt", {**daily.environment, **variables})
        yield processes
    finally:
        for one in processes.values():
            one.send_signal(signal.SIGTERM)
        for one in processes.values():
            end(one)


def states(output: str) -> dict[str, str]:
    """The states of runs by the day of their interval's start."""
    return {one["logical_date"][:10]: one["state"] for one in json.loads(output[output.index("[{") :])}


@pytest.mark.timeout(900)
def test_the_scheduler_runs_each_day(daily: Daily, capsys: pytest.CaptureFixture[str]) -> None:
    """The runs of two days start by their schedule, in their order; a killed training is retried; a day that runs again changes nothing."""
    need("airflow")
    variables = settings(daily)
    daily.run("airflow", "airflow", "db", "migrate", **variables)
    with running(daily, variables) as processes:
        for number, _ in enumerate(DAYS):
            link = f"{number:06}-{'delta' if number else 'full'}"
            wait_until((daily.folder / "links" / link).exists, f"link {link} is there", processes)

        def succeeded() -> bool:
            words = ("dags", "list-runs", "headrace_daily", "--output", "json")
            return states(daily.run("airflow", "airflow", *words, **variables).stdout) == dict.fromkeys(DAYS, "success")

        wait_until(succeeded, "both days have succeeded", processes)
        again = ("--start-date", DAYS[0], "--end-date", f"{DAYS[0]}T12:00:00", "--yes")
        daily.run("airflow", "airflow", "tasks", "clear", "headrace_daily", *again, **variables)
        assert not succeeded()
        wait_until(succeeded, "the first day has succeeded again", processes)
    assert daily.trained(capsys) == sum(daily.events.values())
    assert (daily.folder / "killed").is_dir()
    assert daily.links() == ["000000-full", "000001-delta"]


def test_an_error_that_would_repeat_is_not_retried(tmp_path: Path) -> None:
    need("airflow")
    done = subprocess.run([str(programs("airflow") / "python"), "-c", _STATUSES], capture_output=True, text=True, timeout=PATIENCE_SECS,
                          env={"AIRFLOW_HOME": str(tmp_path), "PATH": os.environ["PATH"]})  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = dict(line.split() for line in done.stdout.splitlines() if line[:1].isdigit())
    retried = {status for status, name in said.items() if name == "RuntimeError"}
    assert (said["0"], retried) == ("ok", {"5", "6", "75", "143"})
    assert {said[status] for status in ("2", "3", "7", "70")} == {"AirflowFailException"}
