"""The queue in memory, filled from a catalog, to compare the two."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, select

from tests.simulation.memory_queue import MemoryQueue
from tests.simulation.work import SimTask
from warehouse import Warehouse
from warehouse.catalog import schema
from warehouse.catalog.task_rows import computes, task_status, waits_for
from warehouse.queue.candidates import CandidateLoader
from warehouse.queue.fair_queue import read_shares
from warehouse.scheduling.batching import BatchBudget
from warehouse.scheduling.task_states import TaskStatus


def task_rows(connection: Connection) -> list[Any]:
    """The memos that are not ready, with their tasks."""
    tasks, memos, fragments = schema.tasks, schema.memos, schema.fragments
    query = (
        select(fragments, memos.c.memo_key, tasks.c.state, tasks.c.losses, memos.c.fingerprint)
        .select_from(memos)
        .join(tasks, tasks.c.id == memos.c.task)
        .join(fragments, fragments.c.id == tasks.c.fragment)
        .order_by(memos.c.memo_key)
    )  # fmt: skip
    return list(connection.execute(query))


def waiting(connection: Connection) -> dict[str, dict[str, int]]:
    """The clients that wait for each memo, with their highest priorities."""
    waits, models, tasks = schema.waits, schema.models, schema.tasks
    query = (
        select(schema.memos.c.memo_key, models.c.client, models.c.priority)
        .select_from(tasks)
        .join(schema.memos, computes())
        .join(waits, waits_for())
        .join(models, models.c.id == waits.c.model)
    )
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for key, client, priority in connection.execute(query.where(models.c.live.is_(True))):
        found[key][client] = max(priority, found[key].get(client, priority))
    return found


def sim_tasks(connection: Connection, warehouse: Warehouse) -> tuple[SimTask, ...]:
    loader, rows = CandidateLoader(connection, BatchBudget(), warehouse.config.limits), task_rows(connection)
    candidates, waits = loader.candidates(rows), waiting(connection)
    secs = loader.secs(rows)
    return tuple(
        SimTask(row.memo_key, (row.table_name, row.partition), row.id, waits.get(row.memo_key, {}), secs[row.memo_key],
                raw_bytes=one.raw_bytes, memo_bytes=one.memo_bytes)
        for row, one in zip(rows, candidates, strict=True)
    )  # fmt: skip


def twin_of(warehouse: Warehouse) -> MemoryQueue:
    """A queue in memory with the warehouse's settings, clients and tasks; none is leased."""
    config = warehouse.config
    with warehouse.catalog.read() as connection:
        queue = MemoryQueue(read_shares(connection), lease_secs=config.lease_secs, limits=config.limits,
                            retry_backoff_secs=config.retry_backoff_secs, floor_share=config.client_floor_share)  # fmt: skip
        for task in sim_tasks(connection, warehouse):
            queue.add(task)
    return queue


def learn(queue: MemoryQueue, warehouse: Warehouse) -> None:
    """Update the costs of tasks by the catalog's measurements."""
    with warehouse.catalog.read() as connection:
        for task in sim_tasks(connection, warehouse):
            queue.reestimate(task.memo_key, secs=task.secs, memo_bytes=task.memo_bytes)


def statuses(warehouse: Warehouse) -> dict[str, TaskStatus]:
    """The status of each memo that is not ready: that of its task."""
    query = select(schema.tasks, schema.memos.c.memo_key).join(schema.memos, computes())
    with warehouse.catalog.read() as connection:
        return {row.memo_key: task_status(row) for row in connection.execute(query)}
