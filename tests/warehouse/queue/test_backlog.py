from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select, update

from tests.warehouse.scenes import Clock, events, evict_component, model, pretended, work, write_partition
from warehouse import Failure, Warehouse, commit_memos, fail_tasks, lease_tasks, register_table, submit_model
from warehouse.catalog import schema
from warehouse.queue.backlog import read_backlog
from warehouse.scheduling.backlog import Backlog

pytestmark = pytest.mark.usefixtures("log")


def of(backlog: Backlog, client: str) -> tuple[int, int, int, float]:
    (one,) = (one for one in backlog.clients if one.client == client)
    return one.tasks, one.leased, one.failed, one.oldest_secs


def test_an_empty_queue(warehouse: Warehouse) -> None:
    assert read_backlog(warehouse) == Backlog()


def test_charges_equal_leased_work_divided_among_waiting_clients(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model("one", "ads", inputs=2))
    clock.advance(100)
    submit_model(warehouse, model("two", "search", inputs=3))
    clock.advance(50)
    backlog = read_backlog(warehouse)
    assert (of(backlog, "ads"), of(backlog, "search")) == ((6, 0, 0, 150.0), (9, 0, 0, 150.0))
    assert (backlog.fragments, backlog.workers) == (3, 0)
    tasks = lease_tasks(warehouse, "w")
    assert len(tasks) == 9
    own = {task.fingerprint for task in tasks} - {item.fingerprint for item in model(inputs=2).inputs.values()}
    ads, search = (one.secs for one in backlog.clients)
    assert ads + search == pytest.approx(sum(task.work_secs for task in tasks))
    assert search - ads == pytest.approx(sum(task.work_secs for task in tasks if task.fingerprint in own))
    leased = read_backlog(warehouse)
    assert [(one.leased, one.queued) for one in leased.clients] == [(6, 0), (9, 0)]
    assert [one.secs for one in leased.clients] == pytest.approx([ads, search])
    assert leased.workers == 1


def test_what_is_done_or_quarantined_is_no_work(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    (bad,) = lease_tasks(warehouse, "w", limit=1)
    for _ in range(2):
        fail_tasks(warehouse, [(bad, Failure("raised", "no"))])
        clock.advance(60)
        (bad,) = lease_tasks(warehouse, "w", limit=1)
    fail_tasks(warehouse, [(bad, Failure("raised", "no"))])
    assert of(read_backlog(warehouse), "search") == (2, 0, 1, 120.0)
    commit_memos(warehouse, [(task, pretended()) for task in lease_tasks(warehouse, "w")])
    backlog = read_backlog(warehouse)
    assert of(backlog, "search") == (0, 0, 1, 0.0)
    assert (backlog.clients[0].secs, backlog.fragments) == (0.0, 0)


def test_what_is_wanted_again_waits_from_then_on(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    work(warehouse)
    clock.advance(1000)
    evict_component(warehouse, next(iter(model(inputs=1).inputs.values())).fingerprint)
    submit_model(warehouse, model(inputs=1))
    clock.advance(5)
    assert of(read_backlog(warehouse), "search") == (3, 0, 0, 5.0)


def test_deadlines_are_the_client_s_own_or_the_default(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("one", "ads", inputs=1))
    submit_model(warehouse, model("two", "search", inputs=1))
    with warehouse.catalog.write() as connection:
        of_ads = schema.clients.c.name == "ads"
        connection.execute(update(schema.clients).where(of_ads).values(deadline_secs=90.0, weight=2.5))
    assert [(one.deadline_secs, one.weight) for one in read_backlog(warehouse).clients] == [(90.0, 2.5), (3600.0, 1.0)]


def test_lost_workers_do_not_count(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    lease_tasks(warehouse, "doomed", limit=1)
    assert read_backlog(warehouse).workers == 1
    clock.advance(61)
    assert read_backlog(warehouse).workers == 0


@pytest.mark.medium
def test_measured_seconds_are_taken(warehouse: Warehouse, tmp_path: Path) -> None:
    submit_model(warehouse, model(inputs=1))
    work(warehouse)
    with warehouse.catalog.write() as connection:
        connection.execute(update(schema.component_costs).values(rows=10.0, secs=20.0))
        assert connection.execute(select(schema.component_costs)).first() is not None
    write_partition(tmp_path / "more", 5, events(30))
    register_table(warehouse, "more", str(tmp_path / "more"))
    submit_model(warehouse, model("again", inputs=1), table="more")
    (found,) = read_backlog(warehouse).clients
    assert found.secs == pytest.approx(60.0, rel=1e-3)
