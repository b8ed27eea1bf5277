"""The queue by minute: recorded once by the first worker that looks, kept for a week, and never more than was there."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import func, select

from tests.warehouse.scenes import Clock, model, work
from warehouse import Warehouse, lease_tasks, submit_model
from warehouse.catalog import schema
from warehouse.queue.history import (
    KEPT_MINUTES,
    ClientSample,
    LeaseHolder,
    QueueMinute,
    lease_holders,
    queue_history,
    record_minute,
)

pytestmark = pytest.mark.usefixtures("log")


def test_a_minute_is_recorded_once_with_what_was_queued_then(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model("one", "ads", inputs=1))
    submit_model(warehouse, model("two", "search", inputs=2))
    assert record_minute(warehouse)
    held = lease_tasks(warehouse, "w", limit=1)
    clock.advance(1)
    assert not record_minute(warehouse), "the same minute"
    clock.advance(40)
    assert record_minute(warehouse)
    before, after = queue_history(warehouse, 10)
    assert (before.clients, before.workers) == ({"ads": ClientSample(3, 0, 0), "search": ClientSample(6, 0, 0)}, 0)
    assert after.at - before.at == 60
    assert after.workers == 1
    assert sum(one.leased for one in after.clients.values()) >= len(held)
    assert after.queued < before.queued


def test_an_empty_queue_is_recorded_and_a_gap_is_not(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    work(warehouse)
    assert record_minute(warehouse)
    clock.advance(300)
    assert record_minute(warehouse)
    first, last = queue_history(warehouse, 60)
    assert (first.clients, first.queued, last.clients) == ({}, 0, {})
    assert last.at - first.at == 300
    clock.advance(3600)
    assert queue_history(warehouse, 60) == (), "only the newest minutes were asked for"


def test_a_week_is_kept(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    record_minute(warehouse)
    clock.advance((KEPT_MINUTES - 1) * 60)
    record_minute(warehouse)
    assert len(queue_history(warehouse, KEPT_MINUTES)) == 2
    clock.advance(60)
    record_minute(warehouse)
    assert len(queue_history(warehouse, 10 * KEPT_MINUTES)) == 2
    with warehouse.catalog.read() as connection:
        assert connection.execute(select(func.count()).select_from(schema.queue_samples)).scalar_one() == 2


def test_one_of_many_workers_records_a_minute(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    done: list[bool] = []

    def record() -> None:
        with Warehouse.open(warehouse.config, clock) as own:
            done.append(record_minute(own))

    threads = [threading.Thread(target=record) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False] * 5 + [True]
    assert len(queue_history(warehouse, 1)) == 1


def test_holders_are_workers_with_valid_leases(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    assert lease_holders(warehouse) == ()
    at = clock.now
    lease_tasks(warehouse, "slow", limit=1)
    clock.advance(5)
    lease_tasks(warehouse, "quick", limit=2)
    secs = warehouse.config.lease_secs
    expected = LeaseHolder("slow", 1, at, at + secs), LeaseHolder("quick", 2, at + 5, at + 5 + secs)
    assert lease_holders(warehouse) == expected
    clock.advance(secs - 1)
    assert [one.worker for one in lease_holders(warehouse)] == ["quick"]


def test_the_sum_is_of_all_clients() -> None:
    assert QueueMinute(0, 1, {"a": ClientSample(3, 1, 0), "b": ClientSample(4, 0, 2)}).queued == 7
