"""Write failed attempts to the catalog: new states of tasks and memos, and the failures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, update

from warehouse.catalog import schema
from warehouse.catalog.bulk import insert_rows, update_rows
from warehouse.catalog.catalog import chunks, one_of, storable
from warehouse.catalog.task_rows import change_values
from warehouse.queue.failures import Failure
from warehouse.scheduling.task_states import MEMO_OF_TASK, TaskChange, TaskEvent


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt at a memo with the change of its task, which has no other memo: a retry, or quarantine."""

    task_id: int
    memo_key: str
    attempt: int
    worker: str | None
    failure: Failure
    change: TaskChange


def write_failed(connection: Connection, failed: Sequence[FailedAttempt], now: float) -> None:
    """Write failed attempts of different tasks. The caller has checked the claims, under the write lock."""
    _keep_failures(connection, failed, now)
    by_event: defaultdict[TaskEvent, list[FailedAttempt]] = defaultdict(list)
    for one in failed:
        by_event[one.change.event].append(one)
    for event, alike in by_event.items():
        _change_tasks(connection, alike, now)
        if event is TaskEvent.QUARANTINE:
            _quarantine_memos(connection, alike, now)


def _keep_failures(connection: Connection, failed: Sequence[FailedAttempt], now: float) -> None:
    """Replace the earlier failure of each task."""
    failures = schema.failures
    for chunk in chunks([one.task_id for one in failed]):
        connection.execute(delete(failures).where(one_of(connection, failures.c.task, chunk)))
    insert_rows(connection, failures, [
        {"task": one.task_id, "worker": one.worker, "attempt": one.attempt, "failed_at": now, "kind": one.failure.kind,
         "operator": storable(one.failure.operator)[:255], "exception": storable(one.failure.exception)[:255],
         "error": storable(one.failure.error), "document": one.failure.to_document()}
        for one in failed
    ])  # fmt: skip


def _change_tasks(connection: Connection, alike: Sequence[FailedAttempt], now: float) -> None:
    """Changes of one event set the same columns; only ``not_before`` differs by task."""
    tasks = schema.tasks
    values = change_values(alike[0].change, now) | {"error": bindparam("text")}
    if "not_before" in values:
        values["not_before"] = bindparam("due")
    connection.execute(
        update(tasks).where(tasks.c.id == bindparam("task")).values(**values),
        [{"task": one.task_id, "text": storable(one.failure.message), "due": one.change.not_before} for one in alike],
    )


def _quarantine_memos(connection: Connection, alike: Sequence[FailedAttempt], now: float) -> None:
    state = MEMO_OF_TASK[alike[0].change.state]
    rows = ({"memo_key": one.memo_key, "cause": _first_line(storable(one.failure.message))} for one in alike)
    update_rows(connection, schema.memos, "memo_key", rows, state=state, changed_at=now, cause_code="failed")


def _first_line(error: str) -> str:
    return error.splitlines()[0] if error else "failed"
