"""Numbers of queued, leased and failed tasks, in total and by client."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from sqlalchemy import Connection, select

from warehouse.catalog import schema
from warehouse.queue.waiting import clients_of, count_in_state, count_open, count_wanted, live_models
from warehouse.scheduling.task_states import TaskState
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """One client's queue. A task that several clients wait for counts in each of their queues.

    Attributes:
        client: The client.
        queued: Tasks that can be leased or wait for their backoff.
        leased: Tasks that a worker holds.
        failed: Quarantined tasks.
        top_priority: The highest priority of the models that wait for a queued task; None without one.
    """

    client: str
    queued: int
    leased: int
    failed: int
    top_priority: int | None


def queued_tasks(warehouse: Warehouse) -> int:
    """The number of tasks that are queued for live models, with those in backoff."""
    with warehouse.catalog.read() as connection:
        return count_wanted(connection, queued_only=True)


def unfinished_tasks(warehouse: Warehouse, within_secs: float = math.inf) -> int:
    """The number of tasks that are leased, or queued for live models and due within ``within_secs``."""
    with warehouse.catalog.read() as connection:
        return count_wanted(connection, queued_only=False, due_by=warehouse.clock() + within_secs)


def queue_depths(warehouse: Warehouse) -> tuple[QueueDepth, ...]:
    """Every client's queue, by name; clients without tasks have zeros."""
    with warehouse.catalog.read() as connection:
        return read_depths(connection)


def read_depths(connection: Connection) -> tuple[QueueDepth, ...]:
    """:func:`queue_depths` inside a transaction."""
    models, states = live_models(connection), (TaskState.LEASED, TaskState.FAILED)
    counted = {state: count_in_state(connection, state) for state in states}
    leased = counted[TaskState.LEASED]
    counted[TaskState.QUEUED] = {
        waiters: count - leased.get(waiters, 0) for waiters, count in count_open(connection).items()
    }
    depths: Counter[tuple[str, TaskState]] = Counter()
    for state, by_waiters in counted.items():
        for waiters, count in by_waiters.items():
            depths.update({(client, state): count for client in clients_of(waiters, models)})
    queued = frozenset().union(*(waiters for waiters, count in counted[TaskState.QUEUED].items() if count))
    top: dict[str, int] = {}
    for model in map(models.__getitem__, queued):
        top[model.client] = max(model.priority, top.get(model.client, model.priority))
    names = connection.execute(select(schema.clients.c.name).order_by(schema.clients.c.name)).scalars()
    return tuple(
        QueueDepth(name, depths[name, TaskState.QUEUED], depths[name, TaskState.LEASED],
                   depths[name, TaskState.FAILED], top.get(name))
        for name in names
    )  # fmt: skip
