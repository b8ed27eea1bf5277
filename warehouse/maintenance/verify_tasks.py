"""Verify the rows of tasks: their leases, memos, fragments and states."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select, update

from warehouse.catalog import schema
from warehouse.catalog.task_rows import computes
from warehouse.maintenance.findings import REPAIR, BadLease, BadTask, Finding, Problem
from warehouse.memos.task_members import delete_done, queue_again
from warehouse.queue.lost_leases import expire_task, find_uncollected
from warehouse.scheduling.task_states import MEMO_OF_TASK, TaskState
from warehouse.warehouse import Warehouse

_OF = schema.tasks.c


def check_leases(connection: Connection, now: float, lease_secs: float) -> list[Problem]:
    """Expired leases that neither a worker nor garbage collection ended."""
    return [_of_lease(row, is_wanted, now) for row, is_wanted in find_uncollected(connection, now, lease_secs)]


def _of_lease(row: Any, is_wanted: bool, now: float) -> Problem:
    late_secs = now - row.lease_until
    ended = (
        f"its lease ended {late_secs:.0f} s ago" if late_secs > 0 else "its lease is from before the clock was set back"
    )
    if is_wanted:
        what, step = f"{ended} and no worker took the task over", "headrace work takes it over, or " + REPAIR
    else:
        what, step = f"{ended}, and no live model waits for the task", f"headrace gc --yes ends it, or {REPAIR}"
    return Problem(Finding("lease", f"task {row.id}, worker {row.worker}", what, step), BadLease(row.id))


def check_tasks(connection: Connection) -> list[Problem]:
    """Contradictions between tasks and their memos and fragments."""
    memos, counted = schema.memos.c, select(_OF.id, func.count()).join(schema.memos, computes()).group_by(_OF.id)
    elsewhere = counted.where(memos.fragment != _OF.fragment)
    misfits = counted.where(_is_misfit())
    empty = select(_OF.id).where(~exists().where(memos.task == _OF.id))
    misplaced = select(_OF.id).join(schema.fragments, schema.fragments.c.id == _OF.fragment).where(_is_misplaced())
    found = [(task, f"{count} of its memos are over another fragment") for task, count in connection.execute(elsewhere)]
    found += [(task, f"{count} of its memos have another state") for task, count in connection.execute(misfits)]
    found += [(task, "it has no memos") for task in connection.execute(empty).scalars()]
    found += [
        (task, "its fragment belongs to another table or partition") for task in connection.execute(misplaced).scalars()
    ]
    return [Problem(Finding("task", f"task {task}", what, REPAIR), BadTask(task)) for task, what in sorted(found)]


def _is_misfit() -> ColumnElement[bool]:
    """The condition that a memo has not the state that its task, which a query joins, gives to its memos."""
    fitting = (and_(_OF.state == task, schema.memos.c.state == memo) for task, memo in MEMO_OF_TASK.items() if task is not TaskState.DONE)  # fmt: skip
    return ~or_(*fitting)


def _is_misplaced() -> ColumnElement[bool]:
    fragments = schema.fragments.c
    return or_(fragments.table_name != _OF.table_name, fragments.partition != _OF.partition)


def repair_task(warehouse: Warehouse, task: int) -> None:
    """Queue the memos that do not fit to a task in new ones, set its place, and delete it if it has no memos."""
    now, memos, fragments = warehouse.clock(), schema.memos.c, schema.fragments.c

    def correct(connection: Connection) -> None:
        mine = select(memos.memo_key).join(schema.tasks, computes()).where(_OF.id == task)
        query = mine.where(or_(memos.fragment != _OF.fragment, _is_misfit()))
        queue_again(connection, connection.execute(query).scalars().all(), now)
        query = select(fragments.table_name, fragments.partition).join(schema.tasks, _OF.fragment == fragments.id)
        for place in connection.execute(query.where(_OF.id == task)).mappings():
            connection.execute(update(schema.tasks).where(_OF.id == task).values(**place))
        delete_done(connection, [task])

    warehouse.catalog.run(correct, idempotent=True)


def repair_lease(warehouse: Warehouse, task: int) -> None:
    """End the expired lease of a task, unless a worker renewed or took it meanwhile."""
    now, lease_secs = warehouse.clock(), warehouse.config.lease_secs
    warehouse.catalog.run(lambda connection: expire_task(connection, task, now, lease_secs), idempotent=True)
