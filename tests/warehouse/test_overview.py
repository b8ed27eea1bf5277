from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse.scenes import events, model, work, write_partition
from warehouse import Warehouse, lease_tasks, list_models, queue_missing, register_table, status, submit_model
from warehouse.overview import model_memos


def test_an_empty_warehouse(warehouse: Warehouse) -> None:
    found = status(warehouse)
    assert (found.tables, found.models, found.memos, found.queues) == ((), (), {}, ())
    assert (found.memo_bytes, found.saved_secs, found.requests.hit_rate) == (0, 0.0, 0.0)


def test_what_sharing_saves(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model("one", "search", inputs=2))
    submit_model(warehouse, model("two", "ads", inputs=3))
    work(warehouse)
    submit_model(warehouse, model("three", "ads", inputs=1))
    found = status(warehouse)
    assert found.memos == {"READY": 9}
    assert (found.requests.hits, found.requests.shared, found.requests.queued) == (3, 6, 9)
    assert found.requests.hit_rate == pytest.approx(0.5)
    assert found.memo_secs == pytest.approx(9 * 0.5)
    assert found.saved_secs == pytest.approx((3 * 2 + 3 * 1) * 0.5)
    assert found.saved_bytes > 0
    assert [record.name for record in found.models] == ["one", "three", "two"]
    assert [(depth.client, depth.queued) for depth in found.queues] == [("ads", 0), ("search", 0)]
    (table,) = found.tables
    assert (table.partitions, table.fragments, table.rows) == (3, 3, 60)


def test_submitting_again_does_not_polish_the_hit_rate(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    before = status(warehouse).requests
    for _ in range(5):
        submit_model(warehouse, model())
    write_partition(log, 8, events(20, seed=8))
    register_table(warehouse, "log", str(log))
    queue_missing(warehouse)
    assert status(warehouse).requests == before


def test_versions(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=1))
    submit_model(warehouse, model(inputs=2))
    assert [(record.name, record.version, record.live) for record in list_models(warehouse)] == [("ctr", 2, True)]
    assert [record.version for record in list_models(warehouse, live=False)] == [1, 2]


def test_memos_of_leased_tasks_are_running(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model("one", inputs=2))
    submit_model(warehouse, model("two", inputs=1))
    work(warehouse, most=1)
    assert len(lease_tasks(warehouse, "worker", limit=2)) == 2
    assert status(warehouse).memos == {"PENDING": 3, "READY": 1, "RUNNING": 2}
    one = next(record.id for record in list_models(warehouse) if record.name == "one")
    assert model_memos(warehouse)[one] == (3, {"PENDING": 3, "READY": 1, "RUNNING": 2})
    lease_tasks(warehouse, "worker", limit=10)
    assert status(warehouse).memos == {"READY": 1, "RUNNING": 5}
    assert model_memos(warehouse)[one] == (3, {"READY": 1, "RUNNING": 5})
