"""Task states as SQL: the rules of :mod:`warehouse.scheduling.task_states` as conditions and column values."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_, exists, or_

from warehouse.catalog import schema
from warehouse.catalog.fragment_rows import is_unit
from warehouse.scheduling.task_states import (
    MOST_BACKOFF_SECS,
    STUCK_LEASES,
    TaskChange,
    TaskEvent,
    TaskState,
    TaskStatus,
    sources,
)

_OF = schema.tasks.c


def change_values(change: TaskChange, now: float) -> dict[str, Any]:
    """The columns that a change sets, for an UPDATE of its tasks."""
    values: dict[str, Any] = {"state": change.state, "lease_until": change.lease_until}
    if change.event is not TaskEvent.HEARTBEAT:
        values["changed_at"] = now
    if change.not_before is not None:
        values["not_before"] = change.not_before
    if change.reset_counts:
        return values | {"attempts": 0, "losses": 0, "created_at": now}
    added = {"fence": change.fences, "attempts": change.attempts, "losses": change.losses}
    return values | {name: _OF[name] + count for name, count in added.items() if count}


def task_status(row: Any) -> TaskStatus:
    """The status in a row with the task's columns."""
    return TaskStatus(
        TaskState(row.state), row.fence, row.attempts, row.losses, row.not_before, row.lease, row.lease_until
    )


def allows(event: TaskEvent) -> ColumnElement[bool]:
    """The condition that a task's state allows ``event``, the compare of a compare-and-swap.

    The tasks are given by id. An expression is in no index: SQLite would otherwise scan all tasks in these states.
    """
    return (_OF.state + "").in_(sources(event))


def leasable(now: float, lease_secs: float) -> ColumnElement[bool]:
    """:func:`warehouse.scheduling.task_states.is_leasable` as a condition."""
    due = or_(_OF.not_before <= now, _OF.not_before > now + MOST_BACKOFF_SECS)
    return or_(and_(_OF.state == TaskState.QUEUED, due), lost(now, lease_secs))


def lost(now: float, lease_secs: float) -> ColumnElement[bool]:
    """:func:`warehouse.scheduling.task_states.is_lost` as a condition."""
    void = or_(_OF.lease_until < now, _OF.lease_until > now + STUCK_LEASES * lease_secs)
    return and_(_OF.state == TaskState.LEASED, void)


def computes() -> ColumnElement[bool]:
    """The condition that a memo is one of a task's, both of which a query joins."""
    return schema.memos.c.task == _OF.id


def is_running() -> ColumnElement[bool]:
    """The condition that a memo is RUNNING: its task, which a query joins, is leased."""
    return _OF.state == TaskState.LEASED


def waits_for() -> ColumnElement[bool]:
    """The condition that a row of ``waits`` is one for a memo and its task, both of which a query joins."""
    return and_(schema.waits.c.fingerprint == schema.memos.c.fingerprint, schema.waits.c.table_name == _OF.table_name)


def is_current() -> ColumnElement[bool]:
    """The condition that the data of a task was not replaced: its fragment is a unit of a table's current version."""
    return is_unit(_OF.fragment)


def wanted(*where: ColumnElement[bool]) -> ColumnElement[bool]:
    """The condition that a live model, for which ``where`` holds, waits for a memo of a task; a query joins both."""
    waits, models = schema.waits, schema.models
    joined = waits.join(models, models.c.id == waits.c.model)
    mine = exists().select_from(joined).where(waits_for(), models.c.live.is_(True), *where)
    return and_(is_current(), mine.correlate(schema.tasks, schema.memos))
