"""Retry or drop quarantined tasks, or plan that, in one transaction each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select, update

from transforms.errors import InputError, listed
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of, storable
from warehouse.catalog.task_rows import change_values, wanted
from warehouse.errors import IllegalTransition
from warehouse.memos.memos import requeue_tasks
from warehouse.memos.task_members import split_each
from warehouse.quarantine.listing import TaskGroup, read_groups
from warehouse.quarantine.query import PLACED, TaskQuery, check_query, conditions
from warehouse.scheduling.task_states import (
    MEMO_OF_TASK,
    MemoState,
    TaskChange,
    TaskEvent,
    TaskState,
    drop_change,
    sources,
)
from warehouse.warehouse import Warehouse

#: The states of memos that are computed only after a retry.
_SKIPPED = (MemoState.FAILED, MemoState.DROPPED)

#: The states in which a task is retried or dropped. A done task has a memo, which is evicted instead.
_CHANGED = {
    event: tuple(state for state in sources(event) if state is not TaskState.DONE)
    for event in (TaskEvent.REQUEUE, TaskEvent.DROP)
}

_Where = Sequence[ColumnElement[bool]]


@dataclass(frozen=True, slots=True)
class QuarantineChange:
    """The effect of a retry or a drop.

    Attributes:
        event: Retry or drop.
        done: Whether it was done, not only planned.
        request: The query as text.
        tasks: Changed tasks.
        groups: The same by component and failure.
        left_leased: Tasks that are leased, and so not retried.
        left_unwanted: Tasks that no live model waits for, and so not retried.
        left_dropped: Dropped tasks; they are retried only by number or by state.
    """

    event: TaskEvent
    done: bool
    request: str
    tasks: int
    groups: tuple[TaskGroup, ...]
    left_leased: int = 0
    left_unwanted: int = 0
    left_dropped: int = 0


def retry_tasks(warehouse: Warehouse, query: TaskQuery, *, dry_run: bool = False) -> QuarantineChange:
    """Queue quarantined tasks again, without backoff and with all their attempts.

    Raises :class:`IllegalTransition` for tasks given by number that are done or leased, and what
    :func:`~warehouse.quarantine.query.check_query` raises.
    """
    if dry_run:
        with warehouse.catalog.read() as connection:
            return _plan_retry(connection, query)[0]
    now = warehouse.clock()

    def act(connection: Connection) -> QuarantineChange:
        planned, retried = _plan_retry(connection, query)
        keys = connection.execute(select(schema.memos.c.memo_key).select_from(PLACED).where(*retried)).scalars().all()
        requeue_tasks(connection, keys, now)
        _queue_memos(connection, keys, now)
        return replace(planned, done=True)

    return warehouse.catalog.run(act)


def _plan_retry(connection: Connection, query: TaskQuery) -> tuple[QuarantineChange, _Where]:
    check_query(connection, query)
    _refuse(connection, query, TaskEvent.REQUEUE)
    of, fitting = schema.tasks.c, conditions(connection, query)
    possible = (*fitting, of.state.in_(_CHANGED[TaskEvent.REQUEUE]))
    retried = (*possible, wanted())
    planned = QuarantineChange(
        TaskEvent.REQUEUE,
        done=False,
        request=query.text,
        tasks=_count(connection, *retried),
        groups=read_groups(connection, retried),
        left_leased=_count(connection, *fitting, of.state == TaskState.LEASED),
        left_unwanted=_count(connection, *possible, ~wanted()),
        left_dropped=0 if query.ids or query.states else _count_dropped(connection, query),
    )
    return planned, retried


def drop_tasks(
    warehouse: Warehouse, query: TaskQuery, *, why: str, who: str = "", dry_run: bool = False
) -> QuarantineChange:
    """Drop quarantined tasks: only :func:`retry_tasks` queues them again.

    A worker that holds one cannot commit. Readers compute the columns on the fly; ``explain`` shows when, ``why`` and by
    ``who`` they were dropped. Raises :class:`InputError` without a reason, :class:`IllegalTransition` for tasks
    given by number that are done or dropped, and what :func:`~warehouse.quarantine.query.check_query` raises.
    """
    if not why.strip():
        raise InputError("why must be a reason", where="quarantine", value=why)
    if dry_run:
        with warehouse.catalog.read() as connection:
            return _plan_drop(connection, query)[0]
    now, cause = warehouse.clock(), storable(f"by {who}: {why.strip()}" if who else f"({why.strip()})")

    def act(connection: Connection) -> QuarantineChange:
        planned, dropped = _plan_drop(connection, query)
        keys = connection.execute(select(schema.memos.c.memo_key).select_from(PLACED).where(*dropped)).scalars().all()
        _drop(connection, keys, drop_change(), cause, now)
        return replace(planned, done=True)

    return warehouse.catalog.run(act)


def _plan_drop(connection: Connection, query: TaskQuery) -> tuple[QuarantineChange, _Where]:
    check_query(connection, query)
    _refuse(connection, query, TaskEvent.DROP)
    dropped = (*conditions(connection, query), schema.tasks.c.state.in_(_CHANGED[TaskEvent.DROP]))
    tasks, groups = _count(connection, *dropped), read_groups(connection, dropped)
    return QuarantineChange(TaskEvent.DROP, done=False, request=query.text, tasks=tasks, groups=groups), dropped


def _refuse(connection: Connection, query: TaskQuery, event: TaskEvent) -> None:
    """Raise for tasks given by number for which ``event`` is not possible."""
    of = schema.tasks.c
    if not query.ids:
        return
    named = select(of.id, of.state).where(one_of(connection, of.id, query.ids), ~of.state.in_(_CHANGED[event]))
    found = connection.execute(named.order_by(of.id)).all()
    if found:
        raise IllegalTransition(
            f"these tasks cannot be {'dropped' if event is TaskEvent.DROP else 'retried'} now",
            where="quarantine",
            value=listed([f"{task} ({state.lower()})" for task, state in found]),
            allowed="tasks that are " + " or ".join(state.lower() for state in _CHANGED[event]),
            next_step="headrace tasks show TASK prints its state",
        )


def _count(connection: Connection, *where: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).select_from(PLACED).where(*where)).scalar_one())


def _count_dropped(connection: Connection, query: TaskQuery) -> int:
    return _count(connection, *conditions(connection, replace(query, states=(TaskState.DROPPED,))))


def _queue_memos(connection: Connection, keys: Sequence[str], now: float) -> None:
    """Make failed and dropped memos pending; their old cause stays readable until they are ready.

    The waiting time of memos that are pending already starts again, too.
    """
    of = schema.memos.c
    values: dict[str, Any] = {"state": MemoState.PENDING, "changed_at": now}
    for chunk in chunks(keys):
        again = (one_of(connection, of.memo_key, chunk), of.state == MemoState.PENDING)
        connection.execute(update(schema.memos).where(*again).values(changed_at=now))
        mine = (one_of(connection, of.memo_key, chunk), of.state.in_(_SKIPPED))
        cause = {"cause_code": "retried", "cause": "retried after: " + of.cause}
        connection.execute(update(schema.memos).where(*mine).values(**values, **cause))


def _drop(connection: Connection, keys: Sequence[str], change: TaskChange, cause: str, now: float) -> None:
    """The waits of the models stay, so that a retry queues the tasks for them again."""
    tasks, memos = schema.tasks, schema.memos
    stands = {"state": MEMO_OF_TASK[change.state], "cause_code": "dropped", "cause": cause, "changed_at": now}
    own = split_each(connection, keys)
    for chunk in chunks(keys):
        mine = one_of(connection, tasks.c.id, [own[key] for key in chunk])
        connection.execute(update(tasks).where(mine).values(**change_values(change, now)))
        connection.execute(update(memos).where(one_of(connection, memos.c.memo_key, chunk)).values(**stands))
