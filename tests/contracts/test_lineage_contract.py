"""Events of lineage are written with what they report, once, and wait until they are sent, on each database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.support.lineage_rules import checked_event
from tests.warehouse.scenes import Clock, compute, model, write_log
from warehouse import (
    Failure,
    Warehouse,
    WarehouseConfig,
    commit_memos,
    fail_tasks,
    lease_tasks,
    register_table,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.changes.drop_table import drop_table
from warehouse.lineage.documents import EventKind, LineageEvent
from warehouse.lineage.outbox import (
    KEPT_SECS,
    TAKEN_SECS,
    count_waiting,
    drop_oldest,
    mark_sent,
    take_events,
    write_events,
)
from warehouse.lineage.recording import TrainingLineage, record_training


@pytest.fixture
def warehouse(config: WarehouseConfig, tmp_path: Path, clock: Clock) -> Iterator[Warehouse]:
    with Warehouse.open(replace(config, lineage="http://127.0.0.1:1"), clock) as opened:
        yield opened


@pytest.fixture
def log(warehouse: Warehouse, tmp_path: Path) -> str:
    root = str(write_log(tmp_path / "log"))
    register_table(warehouse, "log", root)
    submit_model(warehouse, model(inputs=2))
    return root


def documents(warehouse: Warehouse) -> list[dict[str, Any]]:
    with warehouse.catalog.read() as connection:
        found = connection.execute(select(schema.lineage_events.c.document).order_by(schema.lineage_events.c.id))
        return [checked_event(text) for text in found.scalars()]


def of(found: list[dict[str, Any]], job: str) -> list[tuple[str, dict[str, Any]]]:
    return [(one["eventType"], one) for one in found if one["job"]["name"] == job]


def test_a_version_of_a_table_is_an_import(warehouse: Warehouse, log: str) -> None:
    register_table(warehouse, "log", log)  # nothing new, so no version
    (start, _), (complete, event) = of(documents(warehouse), "register/log")
    assert (start, complete) == ("START", "COMPLETE")
    assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [("file", log)]
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == (f"file://{warehouse.storage.root}", "log")
    assert output["facets"]["version"]["datasetVersion"] == "1"
    assert output["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    assert {"name": "query", "type": "string"} in output["facets"]["schema"]["fields"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 60


def test_a_dropped_table_was_read_from_nothing(warehouse: Warehouse, log: str) -> None:
    drop_table(warehouse, "log", force=True)
    _, (complete, event) = of(documents(warehouse), "drop/log")
    assert (complete, event["inputs"]) == ("COMPLETE", [])
    (output,) = event["outputs"]
    assert output["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "DROP"
    assert output["facets"]["version"]["datasetVersion"] == "2"
    assert output["outputFacets"] == {}


def test_committed_memos_are_reported_once_with_their_columns(warehouse: Warehouse, log: str, clock: Clock) -> None:
    tasks = lease_tasks(warehouse, "w")
    done = [(task, compute(warehouse, task)) for task in tasks]
    half = len(done) // 2
    commit_memos(warehouse, done[:half])
    clock.advance(1.0)
    commit_memos(warehouse, done[:half])  # as after an answer that was lost
    commit_memos(warehouse, done[half:])
    found = of(documents(warehouse), "memoize/log")
    assert [kind for kind, _ in found] == ["START", "COMPLETE"] * 2
    assert len({one["run"]["runId"] for _, one in found}) == 2
    rows: dict[str, int] = {}
    for _, event in found[1::2]:
        assert [one["name"] for one in event["inputs"]] == ["log"]
        for output in event["outputs"]:
            name = output["name"]
            rows[name] = rows.get(name, 0) + output["outputFacets"]["outputStatistics"]["rowCount"]
            lineage = output["facets"]["columnLineage"]["fields"]["values"]["inputFields"]
            assert {(one["name"], one["field"]) for one in lineage} <= {("log", name) for name in ("query", "title", "price")}  # fmt: skip
            assert lineage
    assert rows == {f"log/memos/{task.fingerprint}": 60 for task in tasks}


def test_a_failed_attempt_is_reported_with_its_error(warehouse: Warehouse, log: str) -> None:
    task, *_ = lease_tasks(warehouse, "w")
    for _ in range(2):  # a report that is repeated changes nothing
        fail_tasks(warehouse, [(task, Failure("raised", "ValueError: no \0", "lower", "lower(x)"))])
    (start, _), (fail, event) = of(documents(warehouse), "memoize/log")
    assert (start, fail) == ("START", "FAIL")
    assert "ValueError: no \0" in event["run"]["facets"]["errorMessage"]["message"]
    assert [one["outputFacets"] for one in event["outputs"]] == [{}]


def test_nothing_is_written_without_a_receiver(config: WarehouseConfig, tmp_path: Path) -> None:
    with Warehouse.open(config) as opened:
        register_table(opened, "log", str(write_log(tmp_path / "log")))
        record_training(opened, TrainingLineage("/runs/a", "ctr", 1, "log", 1, "", {}), EventKind.COMPLETE)
        assert documents(opened) == []


def test_a_training_that_goes_on_is_one_run(warehouse: Warehouse, log: str, clock: Clock) -> None:
    training = TrainingLineage("/runs/a", "ctr", 1, "log", 1, "hour=02", {}, ["f" * 64])
    record_training(warehouse, training, EventKind.START)
    clock.advance(60.0)
    record_training(warehouse, training, EventKind.START)  # after kill -9
    for _ in range(2):
        record_training(warehouse, training, EventKind.COMPLETE, events=60, checkpoint="epoch-2")
    (start, _), (complete, event) = of(documents(warehouse), "train/ctr")
    assert (start, complete) == ("START", "COMPLETE")
    assert event["outputs"][0]["facets"]["version"]["datasetVersion"] == "epoch-2"
    later = replace(training, last_partition="hour=03")
    record_training(warehouse, later, EventKind.FAIL, error="no space")
    kinds = [kind for kind, _ in of(documents(warehouse), "train/ctr")]
    assert kinds == ["START", "COMPLETE", "START", "FAIL"]


def events(count: int) -> list[LineageEvent]:
    return [LineageEvent(f"{number:064x}", json.dumps(number)) for number in range(count)]


def test_an_event_is_taken_by_one_sender_and_again_if_that_is_killed(warehouse: Warehouse) -> None:
    run = warehouse.catalog.run
    run(lambda connection: write_events(connection, events(5), 0.0))
    run(lambda connection: write_events(connection, events(5), 1.0))
    first = run(lambda connection: take_events(connection, 10.0, 3))
    assert [one.document for one in first] == ["0", "1", "2"]
    second = run(lambda connection: take_events(connection, 10.0, 3))
    assert [one.document for one in second] == ["3", "4"]
    assert run(lambda connection: take_events(connection, 10.0 + TAKEN_SECS, 3)) == ()
    again = run(lambda connection: take_events(connection, 10.1 + TAKEN_SECS, 9))
    assert again == (*first, *second), "with equal bytes"
    numbers = [one.number for one in again]
    run(lambda connection: mark_sent(connection, numbers[:2], numbers[2:], 100.0))
    assert run(count_waiting) == 3
    assert [one.document for one in run(lambda connection: take_events(connection, 100.0, 9))] == ["2", "3", "4"]
    run(lambda connection: write_events(connection, events(1), 101.0))
    assert run(count_waiting) == 3, "a sent event is not written again"
    run(lambda connection: mark_sent(connection, numbers[2:], [], 100.1 + KEPT_SECS))
    run(lambda connection: write_events(connection, events(1), 0.0))
    assert run(count_waiting) == 1, "until it was forgotten"


def test_the_oldest_are_dropped_when_too_many_wait(warehouse: Warehouse) -> None:
    run = warehouse.catalog.run
    run(lambda connection: write_events(connection, events(7), 0.0))
    run(lambda connection: connection.execute(update(schema.lineage_events).where(schema.lineage_events.c.id == 7).values(sent_at=1.0)))  # fmt: skip
    assert run(lambda connection: drop_oldest(connection, 6)) == 0
    assert run(lambda connection: drop_oldest(connection, 4)) == 2
    assert [one.document for one in run(lambda connection: take_events(connection, 0.0, 9))] == ["2", "3", "4", "5"]
