"""Report failed attempts: their tasks are queued again, or quarantined after the last one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlalchemy import Connection

from warehouse.lineage.recording import CommittedMemo, record_memos
from warehouse.memos.task_members import split_each
from warehouse.queue.failed_attempts import FailedAttempt, write_failed
from warehouse.queue.failures import Failure
from warehouse.queue.fair_queue import correct_charges
from warehouse.queue.tasks import LeasedTask, held_tasks
from warehouse.scheduling.fair_shares import Charge
from warehouse.scheduling.task_states import TaskState, failure_change, untried_change
from warehouse.warehouse import Warehouse


def fail_tasks(
    warehouse: Warehouse,
    failed: Iterable[tuple[LeasedTask, Failure]],
    *,
    worker: str | None = None,
    secs: float | None = None,
    draw: Callable[[], float] = random.random,
) -> tuple[TaskState | None, ...]:
    """Report failed attempts, in one transaction, with the same result as one by one.

    A task is queued again, or FAILED (quarantined) after its last attempt. Returns each task's new state; None if its lease
    was lost, so that nothing was changed.

    Args:
        warehouse: The warehouse.
        failed: The tasks with their failures.
        worker: The worker that reports them.
        secs: The core seconds of each attempt; None if unknown. An untried attempt took none.
        draw: Returns a random number in ``[0, 1)``, for the backoff.
    """
    now, config, listed = warehouse.clock(), warehouse.config, list(failed)

    def attempt(task: LeasedTask, failure: Failure) -> FailedAttempt:
        change_of, base_secs = (
            (untried_change, config.untried_backoff_secs)
            if failure.is_untried
            else (failure_change, config.retry_backoff_secs)
        )
        change = change_of(task.attempt, task.losses, config.limits, now, base_secs, draw())
        return FailedAttempt(task.task_id, task.memo_key, task.attempt, worker, failure, change)

    attempts = [(task, attempt(task, failure)) for task, failure in listed]

    def fail(connection: Connection) -> tuple[TaskState | None, ...]:
        held = held_tasks(connection, [task for task, _ in listed])
        seen = set[str]()
        reported: list[FailedAttempt | None] = []
        took: list[tuple[Charge, float]] = []
        for (task, one), number in zip(attempts, held, strict=True):
            # A repeated report of the same attempt has no effect.
            is_held = number is not None and task.memo_key not in seen
            reported.append(one if is_held else None)
            seen.add(task.memo_key)
            took_secs = 0.0 if one.failure.is_untried else secs
            if is_held and took_secs is not None:
                took.append((task.charge, took_secs))
        own = split_each(connection, [one.memo_key for one in reported if one is not None])
        write_failed(connection, [replace(one, task_id=own[one.memo_key]) for one in reported if one is not None], now)
        correct_charges(connection, took)
        record_memos(connection, warehouse, (
            CommittedMemo(f"{task.memo_key} {task.lease}", task.table, task.fingerprint, task.component, error=one.failure.message or "failed")
            for (task, _), one in zip(attempts, reported, strict=True) if one is not None
        ), now)  # fmt: skip
        return tuple(None if one is None else one.change.state for one in reported)

    return warehouse.catalog.run(fail, idempotent=True)
