"""A batch of failed attempts has the results of single ones in few statements, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select

from tests.warehouse.scenes import Clock, model, pretended, write_log
from warehouse import (
    Failure,
    Warehouse,
    WarehouseConfig,
    commit_memos,
    fail_tasks,
    lease_tasks,
    register_table,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.scheduling.task_states import TaskState

BACKOFF_SECS = 100.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def warehouse(config: WarehouseConfig, tmp_path: Path, clock: Clock) -> Iterator[Warehouse]:
    with Warehouse.open(replace(config, max_attempts=2, retry_backoff_secs=BACKOFF_SECS), clock) as opened:
        register_table(opened, "log", str(write_log(tmp_path / "log")))
        submit_model(opened, model(inputs=3))
        yield opened


def rows(warehouse: Warehouse, table: Any, key: str) -> dict[Any, Any]:
    with warehouse.catalog.read() as connection:
        return {getattr(row, key): row for row in connection.execute(select(table))}


def failure(number: int) -> Failure:
    return Failure("raised", f"ValueError: number {number} of 'a\0b'\nand more", f"op{number}", 'f("x", \\)')


def test_each_gets_the_answer_that_it_would_get_alone(warehouse: Warehouse, clock: Clock) -> None:
    tasks = lease_tasks(warehouse, "w", limit=9)
    again = {task.memo_key for task in tasks[:3]}
    assert fail_tasks(warehouse, [(task, failure(0)) for task in tasks]) == (TaskState.QUEUED,) * 9
    clock.advance(BACKOFF_SECS)
    second = lease_tasks(warehouse, "w", limit=9)
    lost, done, *others = [task for task in second if task.memo_key not in again]
    assert commit_memos(warehouse, [(done, pretended("memos/done"))])[0]
    last = [task for task in second if task.memo_key in again]
    # Of those below, `first` is told as if it had never failed before: it is tried again.
    first = [replace(task, attempt=1) for task in others]
    draws = iter([0.0, 0.25, 0.5, 0.75, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    reported = [*first, replace(lost, fence=lost.fence - 1), done, *last, first[0], last[0]]
    answers = fail_tasks(warehouse, [(task, failure(number)) for number, task in enumerate(reported)],
                         worker="w7", draw=lambda: next(draws))  # fmt: skip
    queued, failed = TaskState.QUEUED, TaskState.FAILED
    assert answers == (*[queued] * 4, None, None, *[failed] * 3, None, None)
    found, kept, memos = rows(warehouse, schema.tasks, "id"), rows(warehouse, schema.failures, "task"), rows(
        warehouse, schema.memos, "memo_key"
    )  # fmt: skip
    for number, task in enumerate(first):
        row = found[task.task_id]
        assert (row.state, row.lease_until, row.changed_at) == ("QUEUED", None, clock.now)
        assert row.not_before == pytest.approx(clock.now + BACKOFF_SECS / 2 * (1 + number / 4))
        assert memos[task.memo_key].state == "PENDING"
    for number, task in enumerate(last, len(first) + 2):
        assert (found[task.task_id].state, memos[task.memo_key].state) == ("FAILED", "FAILED")
        assert (memos[task.memo_key].cause_code, memos[task.memo_key].changed_at) == ("failed", clock.now)
        assert memos[task.memo_key].cause == failure(number).message.replace("\0", "\\0").splitlines()[0]
    for number, task in [*enumerate(first), *enumerate(last, len(first) + 2)]:
        row = kept[task.task_id]
        assert (row.worker, row.attempt, row.failed_at, row.operator) == ("w7", task.attempt, clock.now, f"op{number}")
        assert Failure.from_document(row.document) == failure(number)
        assert found[task.task_id].error == failure(number).message.replace("\0", "\\0")
    assert found[lost.task_id].state == "LEASED"
    assert Failure.from_document(kept[lost.task_id].document) == failure(0)
    assert done.task_id not in found
    assert memos[done.memo_key].state == "READY"
    assert done.task_id not in kept


def test_nothing_to_report(warehouse: Warehouse) -> None:
    assert fail_tasks(warehouse, []) == ()


def test_one_is_reported_as_many_are(warehouse: Warehouse) -> None:
    task, *_ = lease_tasks(warehouse, "w", limit=9)
    assert fail_tasks(warehouse, [(replace(task, lease="another"), failure(1))])[0] is None
    assert fail_tasks(warehouse, [(task, failure(1))])[0] is TaskState.QUEUED
    assert fail_tasks(warehouse, [(task, failure(1))])[0] is None


def test_statements_do_not_grow_with_tasks(warehouse: Warehouse) -> None:
    tasks = lease_tasks(warehouse, "w", limit=9)
    statements: list[str] = []
    event.listen(warehouse.catalog._engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert fail_tasks(warehouse, [(tasks[0], failure(0))]) == (TaskState.QUEUED,)
    alone = len(statements)
    fail_tasks(warehouse, [(task, failure(0)) for task in tasks[1:]])
    assert len(statements) <= 2 * alone + 4, "a task of three memos is split; one of one memo is not"
