"""End expired leases that no worker takes over: their tasks are quarantined, or queued again.

A task whose lease expired can be leased by the next worker if a live model waits for it. Two kinds of tasks cannot: those
that lost too many workers, and those that no live model waits for (it was retired, or its table
changed). Every lease and every garbage collection ends their leases, so that their files can be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, or_, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.task_rows import allows, change_values, lost, task_status, wanted
from warehouse.queue.failed_attempts import FailedAttempt, write_failed
from warehouse.queue.failures import Failure
from warehouse.scheduling.task_states import (
    AttemptLimits,
    TaskEvent,
    expire_change,
    is_abandoned,
    is_given_up,
    quarantine_change,
)

#: How long a wanted task may stay with a lost worker while other tasks are served.
UNCOLLECTED_SECS = 86_400.0


@dataclass(frozen=True)
class LostTasks:
    """Rows of tasks with an expired lease that no worker takes over.

    Attributes:
        given_up: They reached the limit of losses.
        abandoned: No live model waits for them.
    """

    given_up: Sequence[Any]
    abandoned: Sequence[Any]

    @property
    def all(self) -> Sequence[Any]:
        """Both."""
        return (*self.given_up, *self.abandoned)

    @property
    def ids(self) -> frozenset[int]:
        """The tasks' ids."""
        return frozenset(row.id for row in self.all)


def find_lost(connection: Connection, now: float, limits: AttemptLimits, lease_secs: float) -> LostTasks:
    """The tasks whose leases :func:`collect_lost` ends."""
    of = schema.tasks.c
    query = select(schema.tasks, wanted().label("is_wanted"))
    query = query.where(lost(now, lease_secs), or_(of.losses + 1 >= limits.max_losses, ~wanted()))
    given_up, abandoned = [], []
    for row in connection.execute(query.order_by(of.id)):
        status = task_status(row)
        if is_given_up(status, now, limits, lease_secs):
            given_up.append(row)
        elif is_abandoned(status, now, lease_secs, is_wanted=bool(row.is_wanted)):
            abandoned.append(row)
    return LostTasks(given_up, abandoned)


def collect_lost(connection: Connection, now: float, limits: AttemptLimits, lease_secs: float) -> int:
    """End expired leases that no worker takes over; returns how many. The caller holds the write lock."""
    found = find_lost(connection, now, limits, lease_secs)
    write_failed(connection, [
        FailedAttempt(row.id, row.memo_key, row.attempts, row.worker,
                      Failure("lost", f"{row.losses + 1} workers were lost while they computed it"), quarantine_change())
        for row in found.given_up
    ], now)  # fmt: skip
    _expire(connection, found.abandoned, now)
    return len(found.all)


def find_uncollected(connection: Connection, now: float, lease_secs: float) -> Sequence[Any]:
    """Tasks with an expired lease that no live model waits for, or that no worker took over for a day."""
    query = select(schema.tasks, wanted().label("is_wanted")).where(lost(now, lease_secs)).order_by(schema.tasks.c.id)
    return [
        row
        for row in connection.execute(query)
        if is_abandoned(task_status(row), now, lease_secs, is_wanted=bool(row.is_wanted))
        or row.lease_until < now - UNCOLLECTED_SECS
    ]


def expire_task(connection: Connection, task: int, now: float, lease_secs: float) -> bool:
    """End the lease of one task if it expired; returns whether it did. The caller holds the write lock."""
    query = select(schema.tasks).where(schema.tasks.c.id == task, lost(now, lease_secs))
    rows = connection.execute(query).all()
    _expire(connection, rows, now)
    return bool(rows)


def _expire(connection: Connection, rows: Sequence[Any], now: float) -> None:
    change, tasks = expire_change(), schema.tasks
    for chunk in chunks(rows):
        here = one_of(connection, tasks.c.id, [row.id for row in chunk])
        connection.execute(update(tasks).where(here, allows(TaskEvent.EXPIRE)).values(**change_values(change, now)))
