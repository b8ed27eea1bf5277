"""End expired leases that no worker takes over: their tasks are quarantined, or queued again.

A task whose lease expired can be leased by the next worker if a live model waits for it. Two kinds of tasks cannot: those
that lost too many workers, and those that no live model waits for (it was retired, or its table
changed). Every lease and every garbage collection ends their leases, so that their files can be deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, or_, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.task_rows import allows, change_values, computes, lost, task_status, wanted
from warehouse.memos.task_members import count_members, split, split_each
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

#: Memos with their tasks, and whether a live model waits for each.
_EACH = select(schema.tasks, schema.memos.c.memo_key, wanted().label("is_wanted")).join(schema.memos, computes())

#: How long a wanted task may stay with a lost worker while other tasks are served.
UNCOLLECTED_SECS = 86_400.0


@dataclass(frozen=True)
class LostTasks:
    """Memos with an expired lease that no worker takes over: rows of their tasks, with the memo's key.

    Attributes:
        given_up: They reached the limit of losses.
        abandoned: No live model waits for them.
        ids: The tasks that have no other memos.
    """

    given_up: Sequence[Any]
    abandoned: Sequence[Any]
    ids: frozenset[int]

    @property
    def all(self) -> Sequence[Any]:
        """Both."""
        return (*self.given_up, *self.abandoned)


def find_lost(connection: Connection, now: float, limits: AttemptLimits, lease_secs: float) -> LostTasks:
    """The memos whose leases :func:`collect_lost` ends."""
    of = schema.tasks.c
    query = _EACH.where(lost(now, lease_secs), or_(of.losses + 1 >= limits.max_losses, ~wanted()))
    given_up, abandoned = [], []
    for row in connection.execute(query.order_by(of.id, schema.memos.c.memo_key)):
        status = task_status(row)
        if is_given_up(status, now, limits, lease_secs):
            given_up.append(row)
        elif is_abandoned(status, now, lease_secs, is_wanted=bool(row.is_wanted)):
            abandoned.append(row)
    ended = Counter(row.id for row in (*given_up, *abandoned))
    members = count_members(connection, ended)
    return LostTasks(given_up, abandoned, frozenset(task for task, count in ended.items() if count == members[task]))


def collect_lost(connection: Connection, now: float, limits: AttemptLimits, lease_secs: float) -> int:
    """End expired leases that no worker takes over; returns how many. The caller holds the write lock."""
    found = find_lost(connection, now, limits, lease_secs)
    if not found.all:
        return 0
    alone = split_each(connection, [row.memo_key for row in found.given_up])
    write_failed(connection, [
        FailedAttempt(alone[row.memo_key], row.memo_key, row.attempts, row.worker,
                      Failure("lost", f"{row.losses + 1} workers were lost while they computed it"), quarantine_change())
        for row in found.given_up
    ], now)  # fmt: skip
    _expire(connection, set(split(connection, [[row.memo_key for row in found.abandoned]]).values()), now)
    return len(found.all)


def find_uncollected(connection: Connection, now: float, lease_secs: float) -> list[tuple[Any, bool]]:
    """Tasks with an expired lease that no live model waits for, or that no worker took over for a day.

    Returns their rows, with whether a live model waits for any memo of the task.
    """
    found: dict[int, tuple[Any, bool]] = {}
    for row in connection.execute(_EACH.where(lost(now, lease_secs)).order_by(schema.tasks.c.id)):
        found[row.id] = (row, bool(row.is_wanted) or (row.id in found and found[row.id][1]))
    return [
        (row, is_wanted)
        for row, is_wanted in found.values()
        if is_abandoned(task_status(row), now, lease_secs, is_wanted=is_wanted)
        or row.lease_until < now - UNCOLLECTED_SECS
    ]


def expire_task(connection: Connection, task: int, now: float, lease_secs: float) -> bool:
    """End the lease of one task if it expired; returns whether it did. The caller holds the write lock."""
    query = select(schema.tasks.c.id).where(schema.tasks.c.id == task, lost(now, lease_secs))
    ids = connection.execute(query).scalars().all()
    _expire(connection, ids, now)
    return bool(ids)


def _expire(connection: Connection, ids: Collection[int], now: float) -> None:
    change, tasks = expire_change(), schema.tasks
    for chunk in chunks(sorted(ids)):
        here = one_of(connection, tasks.c.id, chunk)
        connection.execute(update(tasks).where(here, allows(TaskEvent.EXPIRE)).values(**change_values(change, now)))
