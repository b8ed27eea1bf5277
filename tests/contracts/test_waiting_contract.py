"""The queue's figures, on each database, compared with queries over every task."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import Connection, and_, case, event, func, insert, select, update

from tests.warehouse.scenes import Clock, model, pretended, write_log
from warehouse import (
    Failure,
    QueueDepth,
    TaskQuery,
    Warehouse,
    WarehouseConfig,
    commit_memos,
    drop_tasks,
    fail_tasks,
    lease_tasks,
    queue_depths,
    register_table,
    release_tasks,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.costs.work_estimates import TASK_SECS, load_estimates
from warehouse.models.retire import retire_model
from warehouse.queue.backlog import read_backlog
from warehouse.queue.depths import queued_tasks, unfinished_tasks
from warehouse.queue.waiting import count_fragments, count_open, count_wanted, open_work
from warehouse.scheduling.task_states import TaskState

OPEN = (TaskState.QUEUED, TaskState.LEASED)


class Waited(NamedTuple):
    """A task, and one of the live models that wait for it."""

    key: str
    client: str
    priority: int
    state: str
    since: float
    rows: int
    fingerprint: str
    due_at: float

    def is_open_by(self, at: float) -> bool:
        return self.state == TaskState.LEASED or (self.state == TaskState.QUEUED and self.due_at <= at)


def each_task(connection: Connection) -> list[Waited]:
    """Every task with every live model that waits for it."""
    tasks, waits, models, memos, fragments = (
        schema.tasks.c, schema.waits.c, schema.models.c, schema.memos.c, schema.fragments.c
    )  # fmt: skip
    query = (
        select(memos.memo_key, models.client, models.priority, tasks.state, tasks.created_at, fragments.rows,
               memos.fingerprint, tasks.not_before)
        .join(schema.memos, memos.task == tasks.id)
        .join(schema.waits, and_(waits.fingerprint == memos.fingerprint, waits.table_name == tasks.table_name))
        .join(schema.models, models.id == waits.model)
        .join(schema.fragments, fragments.id == memos.fragment)
        .where(models.live.is_(True))
    )  # fmt: skip
    return [Waited(*row) for row in connection.execute(query)]


def expected_depths(rows: list[Waited], names: list[str]) -> tuple[QueueDepth, ...]:
    def tasks(client: str, state: TaskState) -> int:
        return len({one.key for one in rows if (one.client, one.state) == (client, state)})

    def top(client: str) -> int | None:
        queued = (one for one in rows if (one.client, one.state) == (client, TaskState.QUEUED))
        return max((one.priority for one in queued), default=None)

    queued, leased, failed = TaskState.QUEUED, TaskState.LEASED, TaskState.FAILED
    return tuple(
        QueueDepth(name, tasks(name, queued), tasks(name, leased), tasks(name, failed), top(name)) for name in names
    )


def check(warehouse: Warehouse, now: float) -> None:
    with warehouse.catalog.read() as connection:
        rows = each_task(connection)
        documents = {row.fingerprint: row.document for row in connection.execute(select(schema.components))}
        estimates = load_estimates(connection, documents)
        names = list(connection.execute(select(schema.clients.c.name).order_by(schema.clients.c.name)).scalars())
        tasks, memos = schema.tasks.c, schema.memos.c
        fragments = connection.execute(
            select(func.count(memos.fragment.distinct()))
            .join(schema.tasks, tasks.id == memos.task)
            .where(tasks.state.in_(OPEN), memos.fingerprint.in_(select(schema.waits.c.fingerprint)))
        ).scalar_one()
    assert queued_tasks(warehouse) == len({one.key for one in rows if one.state == TaskState.QUEUED})
    assert unfinished_tasks(warehouse) == len({one.key for one in rows if one.state in OPEN})
    for secs in (0.0, 0.4, 10.0):
        assert unfinished_tasks(warehouse, secs) == len({one.key for one in rows if one.is_open_by(now + secs)})
    depths = expected_depths(rows, names)
    assert queue_depths(warehouse) == depths
    payers: defaultdict[str, set[str]] = defaultdict(set)
    for one in rows:
        payers[one.key].add(one.client)
    backlog = read_backlog(warehouse)
    assert backlog.fragments == fragments
    assert [found.client for found in backlog.clients] == names
    for found, depth in zip(backlog.clients, depths, strict=True):
        mine = {one.key: one for one in rows if one.client == found.client and one.state in OPEN}.values()
        assert (found.queued, found.leased, found.failed) == (depth.queued, depth.leased, depth.failed)
        assert found.oldest_secs == max(0.0, now - min((one.since for one in mine), default=now))
        secs = sum((TASK_SECS + one.rows * estimates[one.fingerprint].row_secs) / len(payers[one.key]) for one in mine)
        size = sum(one.rows * estimates[one.fingerprint].row_bytes / len(payers[one.key]) for one in mine)
        assert (found.secs, found.memo_bytes) == pytest.approx((secs, size))


@pytest.fixture
def warehouse(config: WarehouseConfig, tmp_path: Path, clock: Clock) -> Iterator[Warehouse]:
    with Warehouse.open(config, clock) as opened:
        register_table(opened, "log", str(write_log(tmp_path / "log", hours=4)))
        yield opened


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(3))
def test_figures_equal_those_of_single_tasks(warehouse: Warehouse, clock: Clock, seed: int) -> None:
    draws = random.Random(seed)
    check(warehouse, clock.now)
    for number in range(6):
        submit_model(warehouse, model(f"m{number % 5}", f"client_{number % 5 % 3}", priority=draws.randrange(5),
                                      inputs=draws.randrange(1, 6)))  # fmt: skip
        clock.advance(draws.randrange(1, 100))
        tasks = list(lease_tasks(warehouse, f"w{number}", limit=draws.randrange(1, 9)))
        draws.shuffle(tasks)
        first, second = sorted((draws.randrange(len(tasks) + 1), draws.randrange(len(tasks) + 1)))
        commit_memos(warehouse, [(task, pretended()) for task in tasks[:first]])
        # Half of them as if it was their last attempt.
        failed = [replace(task, attempt=draws.choice((1, 3)), losses=0) for task in tasks[first:second]]
        fail_tasks(warehouse, [(task, Failure("raised", "no")) for task in failed])
        release_tasks(warehouse, tasks[second : second + 1])
        check(warehouse, clock.now)
    with warehouse.catalog.read() as connection:
        some = (
            connection.execute(select(schema.tasks.c.id).where(schema.tasks.c.state == "QUEUED").limit(2))
            .scalars()
            .all()
        )
    if some:
        drop_tasks(warehouse, TaskQuery(ids=tuple(some)), why="a test")
    retire_model(warehouse, "m1")
    scramble(warehouse, draws)
    check(warehouse, clock.now)


def scramble(warehouse: Warehouse, draws: random.Random) -> None:
    """Rows that no event of the queue leaves behind: waits of a model that is not live, ages and lengths of all kinds."""
    models, fragments = schema.models.c, schema.fragments.c

    def change(connection: Connection) -> None:
        names = connection.execute(select(schema.components.c.fingerprint)).scalars().all()
        dead = connection.execute(select(models.id).where(models.live.is_(False))).scalars().all()
        if dead:
            rows = [{"fingerprint": name, "table_name": "log", "model": dead[0]} for name in names[::2]]
            connection.execute(insert(schema.waits), rows)
        tasks = schema.tasks.c
        connection.execute(update(schema.tasks).values(created_at=tasks.created_at - tasks.id % 7))
        connection.execute(
            update(schema.fragments).values(rows=case((fragments.id % 2 == 0, draws.randrange(9)), else_=31))
        )

    warehouse.catalog.run(change)


def test_an_empty_catalog(warehouse: Warehouse) -> None:
    assert (queued_tasks(warehouse), unfinished_tasks(warehouse), queue_depths(warehouse)) == (0, 0, ())


def test_sqlite_uses_its_indexes(warehouse: Warehouse) -> None:
    if warehouse.catalog.dialect != "sqlite":
        pytest.skip("other databases choose by statistics")
    statements: list[tuple[str, tuple[object, ...]]] = []
    submit_model(warehouse, model(inputs=2))
    event.listen(warehouse.catalog._engine, "before_cursor_execute", lambda *args: statements.append(args[2:4]))
    with warehouse.catalog.read() as connection:
        open_work(connection)
        count_open(connection)
        count_wanted(connection, queued_only=True)
        count_fragments(connection)
        asked = [one for one in statements if one[0].startswith("SELECT")]
        plans = [
            [row[3] for row in connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, values)]
            for statement, values in asked
        ]
    waiters, open_tasks, work, *others, fragments = plans
    assert not any("TEMP B-TREE" in step for step in waiters)
    by_state = "SEARCH tasks USING INDEX ix_tasks_state_table_name_partition (state=?)"
    of_component = "SEARCH memos USING COVERING INDEX ix_memos_fingerprint_state (fingerprint=? AND state=?)"
    for plan in (open_tasks, fragments):
        assert by_state in plan
    assert of_component in work
    assert sum(of_component in plan for plan in others) == 2, "of the open and of the wanted ones"
    assert sum(by_state in plan for plan in others) == 3, "and of the leased ones"
    assert not any(step.startswith("SCAN memos") for plan in plans for step in plan)
    assert "SEARCH memos USING INDEX ix_memos_task (task=?)" in fragments
