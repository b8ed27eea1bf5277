"""What every client's queue is worth: tasks, seconds of one core, bytes, and how long the oldest has waited.

The catalog adds up rows by component; a task is never a value of Python's here, however many there are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, func, select

from warehouse import schema
from warehouse.catalog import chunks, one_of
from warehouse.task_states import TaskState
from warehouse.warehouse import Warehouse
from warehouse.work_estimates import TASK_SECS, WorkEstimate, load_estimates


@dataclass(frozen=True, slots=True)
class ClientBacklog:
    """One client's unfinished work. ``tasks`` are queued or leased, ``leased`` of them are with a worker.

    ``secs``: of one core, as estimated; ``memo_bytes`` that they will write. Both are this client's part: a task that
    several clients wait for is shared alike. ``oldest_secs``: how long the oldest has waited. ``deadline_secs``: how long
    one may wait, ``weight``: the client's claim on the workers. ``failed`` tasks are quarantined, and no work.
    """

    client: str
    tasks: int = 0
    leased: int = 0
    failed: int = 0
    secs: float = 0.0
    memo_bytes: float = 0.0
    oldest_secs: float = 0.0
    deadline_secs: float = 3600.0
    weight: float = 1.0

    @property
    def queued(self) -> int:
        """Tasks that no worker has."""
        return self.tasks - self.leased


@dataclass(frozen=True, slots=True)
class Backlog:
    """All clients' queues at one moment, by name. ``fragments``: how many could be computed side by side; ``workers`` hold
    leases that have not run out.
    """

    clients: tuple[ClientBacklog, ...] = ()
    fragments: int = 0
    workers: int = 0


def read_backlog(warehouse: Warehouse) -> Backlog:
    """The backlog now."""
    now = warehouse.clock()
    with warehouse.catalog.read() as connection:
        return backlog_at(connection, now, warehouse.config.deadline_secs)


def backlog_at(connection: Connection, now: float, deadline_secs: float) -> Backlog:
    """:func:`read_backlog` inside a transaction; ``deadline_secs`` is that of clients without one of their own."""
    counts = _counts(connection)
    secs, memo_bytes = _work(connection)
    of = schema.clients.c
    clients = tuple(
        ClientBacklog(
            name,
            *_tasks(counts[name]),
            secs.get(name, 0.0),
            memo_bytes.get(name, 0.0),
            max(0.0, now - min((since for _, since in _open(counts[name])), default=now)),
            deadline_secs if own is None else own,
            weight,
        )
        for name, weight, own in connection.execute(select(of.name, of.weight, of.deadline_secs).order_by(of.name))
    )
    tasks, memos = schema.tasks, schema.memos
    is_open = tasks.c.state.in_((TaskState.QUEUED, TaskState.LEASED))
    fragments = (
        select(func.count(memos.c.fragment.distinct()))
        .join(tasks, tasks.c.memo_key == memos.c.memo_key)
        .where(is_open, memos.c.memo_key.in_(select(schema.waits.c.memo_key)))
    )
    workers = select(func.count(tasks.c.worker.distinct())).where(
        tasks.c.state == TaskState.LEASED, tasks.c.lease_until >= now
    )
    return Backlog(clients, connection.execute(fragments).scalar_one(), connection.execute(workers).scalar_one())


#: By state: how many tasks, and since when the oldest is wanted.
_Counted = dict[TaskState, tuple[int, float]]


def _tasks(counted: _Counted) -> tuple[int, int, int]:
    leased = counted.get(TaskState.LEASED, (0, 0.0))[0]
    return sum(count for count, _ in _open(counted)), leased, counted.get(TaskState.FAILED, (0, 0.0))[0]


def _open(counted: _Counted) -> list[tuple[int, float]]:
    return [found for state, found in counted.items() if state in (TaskState.QUEUED, TaskState.LEASED)]


def _waited_for() -> Any:
    """Each memo that a live model waits for, with each client that has such a model."""
    waits, models = schema.waits, schema.models
    return (
        select(waits.c.memo_key, models.c.client)
        .join(models, and_(models.c.id == waits.c.model, models.c.live.is_(True)))
        .distinct()
        .subquery()
    )


def _counts(connection: Connection) -> defaultdict[str, _Counted]:
    tasks, waited = schema.tasks.c, _waited_for()
    query = (
        select(waited.c.client, tasks.state, func.count(), func.min(tasks.created_at))
        .join(schema.tasks, tasks.memo_key == waited.c.memo_key)
        .group_by(waited.c.client, tasks.state)
    )
    found: defaultdict[str, _Counted] = defaultdict(dict)
    for client, state, count, since in connection.execute(query):
        found[client][TaskState(state)] = (count, since)
    return found


def _work(connection: Connection) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds and bytes of unfinished tasks by client."""
    tasks, memos, fragments, waited = schema.tasks.c, schema.memos.c, schema.fragments.c, _waited_for()
    share = 1.0 / func.count().over(partition_by=waited.c.memo_key)
    open_tasks = (
        select(waited.c.client, memos.fingerprint, share.label("share"), fragments.rows)
        .join(schema.tasks, tasks.memo_key == waited.c.memo_key)
        .join(schema.memos, memos.memo_key == tasks.memo_key)
        .join(schema.fragments, fragments.id == memos.fragment)
        .where(tasks.state.in_((TaskState.QUEUED, TaskState.LEASED)))
        .subquery()
    )
    of = open_tasks.c
    query = select(of.client, of.fingerprint, func.sum(of.share), func.sum(of.share * of.rows)).group_by(
        of.client, of.fingerprint
    )
    rows = connection.execute(query).all()
    estimates = _estimates(connection, {row.fingerprint for row in rows})
    secs: defaultdict[str, float] = defaultdict(float)
    memo_bytes: defaultdict[str, float] = defaultdict(float)
    for client, fingerprint, tasks_part, rows_part in rows:
        estimate = estimates[fingerprint]
        secs[client] += float(tasks_part) * TASK_SECS + float(rows_part) * estimate.row_secs
        memo_bytes[client] += float(rows_part) * estimate.row_bytes
    return secs, memo_bytes


def _estimates(connection: Connection, fingerprints: set[str]) -> dict[str, WorkEstimate]:
    of, documents = schema.components.c, {}
    for chunk in chunks(sorted(fingerprints)):
        query = select(of.fingerprint, of.document).where(one_of(connection, of.fingerprint, chunk))
        documents.update({row.fingerprint: row.document for row in connection.execute(query)})
    return load_estimates(connection, documents)
