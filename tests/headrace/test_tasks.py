"""``headrace tasks`` and ``headrace clients`` from the command line."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from headrace.screens.tasks import TasksScreen
from tests.headrace.test_commands import check_golden
from tests.warehouse.scenes import REPOSITORY
from warehouse import Failure, Warehouse, WarehouseConfig, fail_tasks, lease_tasks, release_tasks
from warehouse.quarantine.listing import TaskRow
from warehouse.queue.failures import encoded_sample
from warehouse.scheduling.task_states import TaskState

SAMPLE = pa.table({
    "query": ["red shoes", None],
    "time": pa.array([0, 1_000_000], pa.timestamp("us", "UTC")),
    "price": pa.array([float("nan"), 2.5], pa.float32()),
})  # fmt: skip


def failure(price: float = 2.5) -> Failure:
    return Failure("raised", f"ValueError: cannot read {price}", "log1p", "log1p(fill_null(price, value=0.0))", (3, 1207),
                   encoded_sample(SAMPLE))  # fmt: skip


@pytest.fixture
def failed(submitted: Any, tmp_path: Path) -> Any:
    """Both models submitted; the price of two of four hours failed for good, of a third one once."""
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), retry_backoff_secs=0.0)) as warehouse:
        for attempt in range(3):
            tasks = lease_tasks(warehouse, "host-7")
            mine = [task for task in tasks if "log1p" in json.dumps(task.component)]
            assert len(mine) == 4
            failing = mine[: 2 + (attempt == 0)]
            for task in failing:
                fail_tasks(warehouse, [(task, failure())], worker="host-7")
            release_tasks(warehouse, [task for task in tasks if task not in failing])
    return submitted


@pytest.mark.slow
def test_the_quarantine_from_list_to_drop(failed: Any, tmp_path: Path) -> None:
    check_golden("tasks_list", without_times(failed("tasks", "list").out))
    check_golden("tasks_list_each", without_times(failed("tasks", "list", "--each").out))
    (group,) = failed("tasks", "list", "--json").json["groups"]
    assert (group["tasks"], group["states"], group["partitions"]) == (3, {"failed": 2, "queued": 1}, 3)
    assert (group["exception"], group["operator"], group["clients"]) == ("ValueError", "log1p", ["search", "shopping"])
    each = failed("tasks", "list", "--each", "--state", "failed", "--json").json["tasks"]
    assert [(one["state"], one["attempts"]) for one in each] == [("failed", 3)] * 2
    number = each[0]["id"]
    check_golden("tasks_show", without_times(failed("tasks", "show", number).out))
    check_golden("tasks_retry_planned", without_times(failed("tasks", "retry", "--operator", "log1p").out))
    check_golden("tasks_drop_planned", without_times(failed("tasks", "drop", number, "--why", "Latin-1").out))
    assert len(failed("tasks", "list", "--each", "--json").json["tasks"]) == 3, "nothing was changed"
    dropped = failed("tasks", "drop", number, "--why", "Latin-1", "--yes", "--json").json
    assert (dropped["done"], dropped["tasks"], dropped["action"]) == (True, 1, "drop")
    assert failed("tasks", "show", number, "--json").json["dropped_why"].endswith("Latin-1")
    assert "dropped on" in failed("model", "explain", "first").out
    assert failed("tasks", "list", "--state", "dropped", "--json").json["groups"][0]["example"] == number
    assert failed("tasks", "retry", "--all", "--yes", "--json").json["left_dropped"] == 1
    assert failed("work", "--until-idle", "--json").json["memos"] == 15
    assert failed("status", "--json").json["memos"] == {"DROPPED": 1, "READY": 15}
    check_golden("tasks_retry_done", without_times(failed("tasks", "retry", number, "--yes").out))
    assert failed("work", "--until-idle", "--json").json["memos"] == 1
    check_golden("tasks_list_nothing", failed("tasks", "list").out)
    assert failed("tasks", "list", "--kind", "memory").out == "no task failed: kind memory\n"


def without_times(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{12}\b", "<hash>", re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "<when>", text))


def test_an_error_is_read_however_many_tasks_have_it() -> None:
    error = "ValueError: cannot read 2.5"
    lines = [TaskRow(number, TaskState.FAILED, "0" * 64, "x", "log", "date=2026-01-01", "raised", "log1p", "ValueError", error, 3, 0,
                      None, None) for number in range(1001, 1101, 2)]  # fmt: skip
    said = io.StringIO()
    Console(width=100, file=said).print(TasksScreen("all of them", tuple(lines), 0, False).render())
    assert f"tasks 1001, 1003, 1005, 1007 and 46 more  {error}" in said.getvalue()


def test_a_sample_is_written_for_python(failed: Any, tmp_path: Path) -> None:
    number = failed("tasks", "list", "--json").json["groups"][0]["example"]
    shown = failed("tasks", "show", number, "--sample", tmp_path / "sample.parquet", "--json").json
    assert shown["events"] == [3, 1207]
    assert shown["sample"] == [
        {"query": "red shoes", "time": "1970-01-01 00:00:00+00:00", "price": "nan"},
        {"query": None, "time": "1970-01-01 00:00:01+00:00", "price": 2.5},
    ]
    assert (shown["failed_worker"], shown["table"], shown["kind"]) == ("host-7", "log", "raised")
    assert {one["client"] for one in shown["models"]} == {"search", "shopping"}
    written = pq.read_table(tmp_path / "sample.parquet")
    assert written.schema == SAMPLE.schema
    assert written["query"].to_pylist() == SAMPLE["query"].to_pylist()
    error = failed("tasks", "show", number, "--sample", tmp_path / "no" / "folder.parquet", status=6).err
    assert "the sample cannot be written" in error


STRICT = """
import headrace as hr

@hr.op(result="int64")
def strict(position):
    if 3 in position.to_pylist():
        raise ValueError("position 3 is for sale")
    return position

model = hr.Model("strict", client="c", label="clicked", table="log")
model.input("place", strict(hr.int64("position")))
model.input("price", hr.float32("price").fill_null(0.0))
"""


@pytest.mark.slow
def test_from_a_failure_and_its_sample_to_a_fixed_model(cli: Any, tmp_path: Path, small_log: Path) -> None:
    """A real worker, what it found, the very lines of ``docs/quarantine.md`` over the sample, drop, and a new version."""
    cli("table", "add", "log", small_log)
    path = tmp_path / "my_models.py"
    path.write_text(STRICT, encoding="utf-8")
    cli("model", "submit", path)
    done = cli("work", "--until-idle").out
    assert "4 memos" in done, "its neighbour is computed"
    assert "next: headrace tasks list shows which and why" in done
    (group,) = cli("tasks", "list", "--json").json["groups"]
    assert (group["tasks"], group["states"], group["models"]) == (4, {"failed": 4}, ["strict v1"])
    assert (group["kind"], group["operator"], group["exception"]) == ("raised", "python_function", "ValueError")
    where = (group["fingerprint"][:12], "--partition", "date=2026-03-02/hour=01")
    shown = cli("tasks", "show", *where, "--sample", tmp_path / "sample.parquet", "--json").json
    assert (shown["state"], shown["attempts"], shown["kind"], shown["alike"]) == ("failed", 3, "raised", 3)
    assert "position 3 is for sale" in shown["error"]
    assert "python_function(position, strict" in shown["expression"]
    assert shown["sample"] == [{"position": 3}]
    (event,) = shown["events"]
    assert pq.read_table(shown["file"])["position"][event].as_py() == 3
    text = cli("tasks", "show", *where).out
    assert "3 of 3" in text
    assert "3 more tasks of this component failed" in text
    assert "raised ValueError" in _as_the_page_says(tmp_path)
    assert "headrace tasks list shows why" in cli("model", "submit", path).out
    cli("tasks", "drop", "--model", "strict", "--why", "fixed in version 2", "--yes")
    assert "4 are dropped" in cli("model", "submit", path).out
    path.write_text(STRICT.replace("if 3 in", "if 33 in"), encoding="utf-8")
    assert cli("model", "submit", path, "--json").json["models"][0]["queued"] == 4
    assert cli("work", "--until-idle", "--json").json["memos"] == 4
    assert cli("tasks", "list", "--json").json["groups"] == []


def _as_the_page_says(folder: Path) -> str:
    page = (REPOSITORY / "docs/quarantine.md").read_text(encoding="utf-8")
    lines = page.partition("```python\n")[2].partition("```")[0]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", lines], cwd=folder, env=environment, capture_output=True, text=True,
                          check=True)  # fmt: skip
    return done.stdout


MISTAKES: list[tuple[tuple[str, ...], int, str]] = [
    (("show", "999"), 4, "no such task"),
    (("show", "abcdef"), 4, "no such task"),
    (("show", "%"), 2, "hexadecimal"),
    (("retry", "999"), 4, "no such task"),
    (("retry",), 2, "tasks must be chosen"),
    (("drop", "--yes"), 2, "tasks must be chosen"),
    (("drop", "--all", "--kind", "data"), 2, "--all must not be combined with conditions"),
    (("drop", "1", "--kind", "data"), 2, "by numbers or by conditions, not by both"),
    (("drop", "--all", "--why", " "), 2, "--why"),
    (("list", "--state", "done"), 2, "failed, queued, leased, dropped"),
    (("list", "--kind", "bad"), 2, "raised, memory, stalled, lost, data, unreadable, release, defect"),
    (("list", "--model", "frist"), 4, "first"),
    (("list", "--client", ""), 2, "a condition must have a value"),
    (("list", "--component", "xyz"), 2, "hexadecimal"),
    (("list", "--table", "lag"), 4, "log"),
]


def test_mistakes(failed: Any) -> None:
    for words, status, part in MISTAKES:
        assert part in failed("tasks", *words, status=status).err, words


def test_several_candidates_are_named(failed: Any) -> None:
    fingerprint = failed("tasks", "list", "--json").json["groups"][0]["fingerprint"]
    error = failed("tasks", "show", fingerprint[:8], status=2).err
    assert error.count("date=2026-03-02/hour=") == 3


def test_clients(submitted: Any) -> None:
    check_golden("clients_list", submitted("clients", "list").out)
    check_golden("clients_set", submitted("clients", "set", "search", "--weight", 3, "--deadline", "2h").out)
    rows = {row["name"]: row for row in submitted("clients", "list", "--json").json["clients"]}
    assert (rows["search"]["weight"], rows["search"]["deadline_secs"], rows["search"]["share"]) == (3.0, 7200.0, 0.75)
    assert (
        submitted("clients", "set", "search", "--deadline", "default", "--json").json["client"]["deadline_secs"] is None
    )
    assert "25.0 %" in submitted("status").out
    assert "allowed: search" in submitted("clients", "set", "serach", "--weight", 1, status=4).err
    assert "must be a number" in submitted("clients", "set", "search", "--weight", 0, status=2).err
    assert "such as 90s, 30m, 2h" in submitted("clients", "set", "search", "--deadline", "soon", status=2).err
    assert "a weight or a deadline must be given" in submitted("clients", "set", "search", status=2).err


def test_the_queue(submitted: Any) -> None:
    shown = submitted("queue").out
    assert "no worker holds a lease; next: headrace work" in shown
    assert "no worker recorded the queue in the last 60 minutes" in shown
    submitted("work", "--until-idle")
    found = submitted("queue", "--last", "2d", "--json").json
    assert (found["minutes"], found["holders"]) == (2880, [])
    assert len(found["history"]) >= 1, "workers record the queue"
    assert "at most a week" in submitted("queue", "--last", "8d", status=2).err
