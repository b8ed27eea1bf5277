"""The example for Dagster: its schedule, and its job with the multiprocess executor."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.orchestrators.conftest import DAYS, Daily, need
from tests.orchestrators.install import ROOT, programs
from tests.support.processes import PATIENCE_SECS

pytestmark = pytest.mark.orchestrators

EXAMPLE = ROOT / "examples" / "dagster" / "headrace_daily.py"

_LOAD = f"""
import importlib.util, json, os, sys
from datetime import datetime
from dagster import Failure, build_schedule_context
spec = importlib.util.spec_from_file_location("headrace_daily", {str(EXAMPLE)!r})
example = sys.modules["headrace_daily"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
"""
_TICKS = f"""{_LOAD}
repository = example.definitions.get_repository_def()
found = {{}}
for text in sys.argv[1:]:
    context = build_schedule_context(scheduled_execution_time=datetime.fromisoformat(text), repository_def=repository)
    found[text] = [one.partition_key for one in example.every_day.evaluate_tick(context).run_requests]
print(json.dumps([example.every_day.cron_schedule, found]))
"""
_STATUSES = f"""{_LOAD}
os.environ["HEADRACE_COMMAND"] = "/bin/sh"
said = {{}}
for status in (0, 2, 3, 5, 6, 7, 70, 75, 143):
    try:
        example.headrace("-c", f"exit {{status}}")
    except Failure as error:
        said[status] = error.allow_retries
print(json.dumps(said))
"""


def run_python(code: str, *words: str) -> str:
    """The output of code in the environment of Dagster."""
    need("dagster")
    done = subprocess.run([str(programs("dagster") / "python"), "-c", code, *words], capture_output=True, text=True, timeout=PATIENCE_SECS)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_schedule_asks_for_the_day_before() -> None:
    at = [f"{day}T03:00:00+00:00" for day in ("2026-03-03", "2026-03-04")]
    cron, found = json.loads(run_python(_TICKS, *at))
    assert (cron, found) == ("0 3 * * *", {at[0]: [DAYS[0]], at[1]: [DAYS[1]]})


def test_an_error_that_would_repeat_is_not_retried() -> None:
    said = json.loads(run_python(_STATUSES))
    assert said == {"2": False, "3": False, "5": True, "6": True, "7": False, "70": False, "75": True, "143": True}


@pytest.mark.timeout(900)
def test_the_job_runs_for_each_day(daily: Daily, capsys: pytest.CaptureFixture[str]) -> None:
    """Each step is a process of Dagster's executor; a killed training is retried; a day that runs again changes nothing."""
    need("dagster")
    home = daily.folder / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_bytes(EXAMPLE.with_name("dagster.yaml").read_bytes())
    text = EXAMPLE.read_text(encoding="utf-8")
    assert "delay=120" in text
    example = daily.folder / EXAMPLE.name
    example.write_text(text.replace("delay=120", "delay=2"), encoding="utf-8")
    trained, retried = [], []
    for day in (*DAYS, DAYS[0]):
        tags = json.dumps({"dagster/partition": day})
        words = ("job", "execute", "--python-file", str(example), "--job", "headrace_daily", "--tags", tags)
        done = daily.run("dagster", "dagster", *words, DAGSTER_HOME=str(home))
        retried.append("STEP_UP_FOR_RETRY" in done.stdout + done.stderr)
        trained.append(daily.trained(capsys))
    both = sum(daily.events.values())
    assert (trained, retried) == ([daily.events[DAYS[0]], both, both], [True, False, False])
    assert daily.links() == ["000000-full", "000001-delta"]
