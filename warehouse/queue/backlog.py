"""Read the backlog (:mod:`warehouse.scheduling.backlog`) from the catalog.

The catalog sums rows by component: memory does not grow with the number of tasks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, func, select

from warehouse.catalog import schema
from warehouse.costs.work_estimates import TASK_SECS, load_estimates
from warehouse.models.models import load_documents
from warehouse.queue.waiting import (
    Waiters,
    WaitingModel,
    clients_of,
    count_fragments,
    count_in_state,
    live_models,
    open_work,
)
from warehouse.scheduling.backlog import Backlog, ClientBacklog
from warehouse.scheduling.task_states import TaskState
from warehouse.warehouse import Warehouse


def read_backlog(warehouse: Warehouse) -> Backlog:
    """The current backlog."""
    now = warehouse.clock()
    with warehouse.catalog.read() as connection:
        return backlog_at(connection, now, warehouse.config.deadline_secs)


def backlog_at(connection: Connection, now: float, deadline_secs: float) -> Backlog:
    """:func:`read_backlog` inside a transaction; ``deadline_secs`` is that of clients without one of their own."""
    models, work = live_models(connection), open_work(connection)
    tasks, since, shares = _Tasks(), dict[str, float](), defaultdict[tuple[str, str], list[float]](lambda: [0.0, 0.0])
    for group in work:
        waiting = clients_of(group.waiters, models)
        for client in waiting:
            tasks[client] += group.tasks
            since[client] = min(group.since, since.get(client, group.since))
            shared = shares[client, group.fingerprint]
            shared[0] += group.tasks / len(waiting)
            shared[1] += group.rows / len(waiting)
    secs, memo_bytes = _worth(connection, shares)
    leased, failed = (
        _by_client(count_in_state(connection, state), models) for state in (TaskState.LEASED, TaskState.FAILED)
    )
    of = schema.clients.c
    clients = tuple(
        ClientBacklog(
            name,
            tasks[name],
            leased[name],
            failed[name],
            secs.get(name, 0.0),
            memo_bytes.get(name, 0.0),
            max(0.0, now - since.get(name, now)),
            deadline_secs if own is None else own,
            weight,
        )
        for name, weight, own in connection.execute(select(of.name, of.weight, of.deadline_secs).order_by(of.name))
    )
    task = schema.tasks.c
    workers = select(func.count(task.worker.distinct())).where(task.state == TaskState.LEASED, task.lease_until >= now)
    return Backlog(clients, count_fragments(connection), connection.execute(workers).scalar_one())


#: The number of tasks by client.
_Tasks = Counter[str]
#: Tasks and rows of fragments by client and component, divided among the clients that wait.
_Shares = Mapping[tuple[str, str], Sequence[float]]


def _by_client(counted: Mapping[Waiters, int], models: Mapping[int, WaitingModel]) -> _Tasks:
    found = _Tasks()
    for waiters, count in counted.items():
        found.update(dict.fromkeys(clients_of(waiters, models), count))
    return found


def _worth(connection: Connection, shares: _Shares) -> tuple[dict[str, float], dict[str, float]]:
    """Estimated seconds and bytes by client."""
    estimates = load_estimates(connection, load_documents(connection, {fingerprint for _, fingerprint in shares}))
    secs: defaultdict[str, float] = defaultdict(float)
    memo_bytes: defaultdict[str, float] = defaultdict(float)
    for (client, fingerprint), (tasks, rows) in shares.items():
        estimate = estimates[fingerprint]
        secs[client] += tasks * TASK_SECS + rows * estimate.row_secs
        memo_bytes[client] += rows * estimate.row_bytes
    return secs, memo_bytes
