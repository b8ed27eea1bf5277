"""The queue of each minute of the last days, as workers record it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import insert_absent
from warehouse.queue.depths import read_depths
from warehouse.scheduling.task_states import TaskState
from warehouse.warehouse import Warehouse

MINUTE_SECS = 60
#: Minutes that are kept: a week.
KEPT_MINUTES = 7 * 24 * 60


@dataclass(frozen=True, slots=True)
class ClientSample:
    """The tasks of one client in a minute, as :class:`~warehouse.queue.depths.QueueDepth` counts them."""

    queued: int
    leased: int
    failed: int


@dataclass(frozen=True, slots=True)
class QueueMinute:
    """The queue in one minute.

    Attributes:
        at: The first second of the minute, as an epoch time.
        workers: Workers that held a lease.
        clients: By name, the clients that had tasks.
    """

    at: int
    workers: int
    clients: Mapping[str, ClientSample]

    @property
    def queued(self) -> int:
        """The queued tasks of all clients; one that several wait for counts for each."""
        return sum(one.queued for one in self.clients.values())


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """A worker that holds leases.

    Attributes:
        worker: Its name.
        tasks: Tasks that it holds.
        since: When it leased the oldest of them.
        until: When the first of its leases expires.
    """

    worker: str
    tasks: int
    since: float
    until: float


def record_minute(warehouse: Warehouse) -> bool:
    """Record the queue of the current minute, unless that was done; whether this call did. Minutes before the last week are removed."""
    now = warehouse.clock()
    minute = int(now // MINUTE_SECS)
    of = schema.queue_minutes
    with warehouse.catalog.read() as connection:
        if connection.execute(select(of.c.minute).where(of.c.minute == minute)).first() is not None:
            return False

    def record(connection: Connection) -> bool:
        if connection.execute(select(of.c.minute).where(of.c.minute == minute)).first() is not None:
            return False
        connection.execute(insert(of).values(minute=minute, workers=len(_holders(connection, now))))
        rows = [
            {"minute": minute, "client": one.client, "queued": one.queued, "leased": one.leased, "failed": one.failed}
            for one in read_depths(connection)
            if one.queued or one.leased or one.failed
        ]
        insert_absent(connection, schema.queue_samples, rows)
        for table in (schema.queue_samples, of):
            connection.execute(delete(table).where(table.c.minute <= minute - KEPT_MINUTES))
        return True

    return warehouse.catalog.run(record, idempotent=True)


def queue_history(warehouse: Warehouse, minutes: int) -> tuple[QueueMinute, ...]:
    """The recorded ones of the newest ``minutes``, the oldest first."""
    least = int(warehouse.clock() // MINUTE_SECS) - minutes
    of, samples = schema.queue_minutes.c, schema.queue_samples.c
    with warehouse.catalog.read() as connection:
        found = connection.execute(select(of.minute, of.workers).where(of.minute > least).order_by(of.minute)).all()
        clients: defaultdict[int, dict[str, ClientSample]] = defaultdict(dict)
        query = select(samples.minute, samples.client, samples.queued, samples.leased, samples.failed)
        for minute, client, *counts in connection.execute(query.where(samples.minute > least)):
            clients[minute][client] = ClientSample(*counts)
    return tuple(QueueMinute(minute * MINUTE_SECS, workers, clients[minute]) for minute, workers in found)


def lease_holders(warehouse: Warehouse) -> tuple[LeaseHolder, ...]:
    """The workers that hold leases which have not expired, those of the oldest lease first."""
    with warehouse.catalog.read() as connection:
        return _holders(connection, warehouse.clock())


def _holders(connection: Connection, now: float) -> tuple[LeaseHolder, ...]:
    task = schema.tasks.c
    since = func.min(task.changed_at)
    query = select(task.worker, func.count(), since, func.min(task.lease_until))
    query = query.where(task.state == TaskState.LEASED, task.lease_until >= now).group_by(task.worker)
    return tuple(LeaseHolder(*row) for row in connection.execute(query.order_by(since, task.worker)))
