"""``headrace --lineage``: commands, and workers that are killed, report each commit once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import dataset

from headrace.demo.sample_log import write_sample_log
from headrace.lineage.receivers import receiver_of
from headrace.lineage.sender import LineageCounts, LineageSender
from tests.headrace.conftest import SMALL, UNTRIED
from tests.support.lineage_receiver import LineageReceiver, receiving
from tests.support.lineage_rules import checked_event
from tests.support.processes import PATIENCE_SECS
from transforms.child_process import child_environment, module_command
from warehouse import Warehouse, WarehouseConfig
from warehouse.lineage.outbox import TAKEN_SECS, count_waiting

VARIABLE = "HEADRACE_LINEAGE"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command sets the variable for its children; a test takes it back."""
    monkeypatch.setenv(VARIABLE, "")


def jobs(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["job"]["name"], one["eventType"]) for one in events]


def written_rows(events: list[dict[str, Any]]) -> Counter[str]:
    """The rows of each component, over all runs that are complete."""
    found: Counter[str] = Counter()
    for one in events:
        if one["job"]["name"] == "memoize/log" and one["eventType"] == "COMPLETE":
            for output in one["outputs"]:
                found[output["name"]] += output["outputFacets"]["outputStatistics"]["rowCount"]
    return found


@pytest.mark.medium
def test_what_commands_commit_is_in_a_file(cli, small_log, models_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli("--lineage", "lineage.jsonl", "table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", models_file, "--table", "log")
    cli("work", "--until-idle")
    events = [checked_event(line) for line in (tmp_path / "lineage.jsonl").read_bytes().splitlines()]
    names = jobs(events)
    assert names[:2] == [("register/log", "START"), ("register/log", "COMPLETE")]
    assert set(names[2:]) == {("memoize/log", "START"), ("memoize/log", "COMPLETE")}
    rows = written_rows(events)
    assert len(rows) == 4
    assert set(rows.values()) == {dataset.dataset(small_log, partitioning="hive").count_rows()}
    shown = cli("config", "show", "--json").json["settings"]
    (setting,) = (one for one in shown if one["name"] == "lineage")
    assert (setting["value"], setting["source"]) == (str(tmp_path / "lineage.jsonl"), f"${VARIABLE}")


@pytest.mark.parametrize("text", ["ftp://host", "http://", "http://user:secret@host"])
def test_a_receiver_that_is_none_is_refused(cli, text):
    answer = cli("--lineage", text, "status", status=2)
    assert f"${VARIABLE}" in answer.err
    assert "secret" not in answer.err


@pytest.mark.slow
def test_a_training_is_a_run_with_the_columns_of_its_inputs(submitted, tmp_path):
    pytest.importorskip("tensorflow")
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps({"batch_rows": 64, **UNTRIED}), encoding="utf-8")
    with receiving() as receiver:
        for _ in range(2):  # the second one has nothing to train, and is the same run
            submitted("--lineage", receiver.url, "train", "first", "--config", settings)
        events = receiver.events
        kinds = [kind for _, kind in jobs(events)]
        assert kinds == ["START", *["RUNNING"] * (len(kinds) - 2), "COMPLETE"]
        assert len(kinds) > 2, "each commit"
        assert len({one["run"]["runId"] for one in events}) == 1
        (output,) = events[-1]["outputs"]
        assert output["name"] == "models/first@1"
        assert output["facets"]["version"]["datasetVersion"]
        assert output["outputFacets"]["outputStatistics"]["rowCount"] > 0
        fields = output["facets"]["columnLineage"]["fields"]
        columns = {name: sorted(one["field"] for one in found["inputFields"]) for name, found in fields.items()}
        assert columns == {"overlap": ["ad_title", "query"], "user": ["user_id"], "price": ["price"]}


def work(home: Path, url: str, **options: Any) -> subprocess.Popen[bytes]:
    words = ("--lineage", url, "work", "--until-idle", "--batch-tasks", "8", "--home", str(home))
    environment = {**child_environment(), "HEADRACE_LEASE_SECS": "1"}
    return subprocess.Popen(module_command("headrace", *words), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)  # fmt: skip


def kill_after(receiver: LineageReceiver, worker: subprocess.Popen[bytes], requests: int) -> None:
    """Kill a worker, with all its processes, once the receiver has so many more requests, the last of them without an answer."""
    end, wanted = time.monotonic() + PATIENCE_SECS, receiver.requests + requests
    while receiver.requests < wanted and worker.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert worker.poll() is None, "it is killed in the middle"
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


@pytest.mark.slow
def test_each_committed_memo_is_reported_once_though_workers_are_killed(cli, models_file, tmp_path):
    write_sample_log(tmp_path / "log", replace(SMALL, hours=48), late=False)
    cli("table", "add", "log", tmp_path / "log", "--time-column", "time")
    cli("model", "submit", models_file, "--table", "log")
    home = tmp_path / "home"
    with receiving() as receiver:
        receiver.delay_secs = 0.3  # so that a kill comes while an event is on its way
        for requests in (1, 2, 3):
            kill_after(receiver, work(home, receiver.url, start_new_session=True), requests)
        receiver.delay_secs = 0.0
        assert work(home, receiver.url).wait(PATIENCE_SECS) == 0
        config = WarehouseConfig(str(home), lineage=receiver.url)
        with Warehouse.open(
            config, lambda: time.time() + 2 * TAKEN_SECS
        ) as warehouse:  # those that were taken by the killed
            sender = LineageSender(warehouse, receiver_of(config), LineageCounts())
            sender.start()
            sender.close(PATIENCE_SECS)
            assert warehouse.catalog.query(count_waiting) == 0
        events = receiver.events
        ends = Counter(one["run"]["runId"] for one in events if one["eventType"] == "COMPLETE")
        assert set(ends.values()) == {1}
        assert len(receiver.bodies) > len(events), "an event was sent again after a kill"
        rows = written_rows(events)
        assert len(rows) == 4
        assert set(rows.values()) == {dataset.dataset(tmp_path / "log", partitioning="hive").count_rows()}
