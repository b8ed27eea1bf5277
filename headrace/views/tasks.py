"""Failed tasks: grouped by equal failures, listed, and one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.screens.tasks import ChangeScreen, GroupsScreen, TaskScreen, TasksScreen
    from warehouse.quarantine.listing import TaskDetail
    from warehouse.quarantine.query import TaskQuery
    from warehouse.scheduling.task_states import AttemptLimits
    from warehouse.warehouse import Warehouse


def groups(warehouse: Warehouse, query: TaskQuery, *, limit: int = 50, offset: int = 0) -> GroupsScreen:
    """Failed tasks, a row per equal failure."""
    from headrace.screens.tasks import GroupsScreen
    from warehouse.quarantine.listing import quarantine_groups

    found = quarantine_groups(warehouse, query, limit=limit + 1, offset=offset)
    return GroupsScreen(query.text, found[:limit], offset, len(found) > limit)


def page(warehouse: Warehouse, query: TaskQuery, *, limit: int = 50, offset: int = 0) -> TasksScreen:
    """Failed tasks, a row each."""
    from headrace.screens.tasks import TasksScreen
    from warehouse.quarantine.listing import quarantine_tasks

    rows = quarantine_tasks(warehouse, query, limit=limit + 1, offset=offset)
    return TasksScreen(query.text, rows[:limit], offset, len(rows) > limit)


def shown(warehouse: Warehouse, task: str, *, partition: str | None = None, sample_file: str = "") -> TaskScreen:
    """A task by its number, or by the first digits of its component's fingerprint. Raises :class:`~transforms.errors.NotFound`.

    ``sample_file``: where the events of :func:`sample` were written.
    """
    from warehouse.quarantine.listing import get_task

    return _screen(get_task(warehouse, task, partition=partition), warehouse.config.limits, sample_file)


def sample(warehouse: Warehouse, task: str, *, partition: str | None = None) -> pa.Table:
    """The events on which a task fails. Raises :class:`~transforms.errors.NotFound`."""
    from warehouse.quarantine.listing import get_task, task_sample

    return task_sample(warehouse, get_task(warehouse, task, partition=partition))


def retried(warehouse: Warehouse, query: TaskQuery, *, dry_run: bool) -> ChangeScreen:
    """Queue tasks again, without delay and with all attempts, or show which. Raises :class:`~warehouse.errors.UnknownTask`."""
    from headrace.screens.tasks import ChangeScreen
    from warehouse.quarantine.changes import retry_tasks

    return ChangeScreen(retry_tasks(warehouse, query, dry_run=dry_run))


def dropped(warehouse: Warehouse, query: TaskQuery, *, why: str, who: str, dry_run: bool) -> ChangeScreen:
    """Remove tasks from the queue until they are retried, or show which. Raises :class:`~warehouse.errors.UnknownTask`."""
    from headrace.screens.tasks import ChangeScreen
    from warehouse.quarantine.changes import drop_tasks

    return ChangeScreen(drop_tasks(warehouse, query, why=why, who=who, dry_run=dry_run))


def _screen(found: TaskDetail, limits: AttemptLimits, sample_file: str) -> TaskScreen:
    from headrace.screens.tasks import TaskScreen, sample_values
    from headrace.terminal.units import moment

    failure, dropped = found.failure, found.dropped
    rows = None if failure is None else failure.sample_table()
    return TaskScreen(
        id=found.task_id,
        state=found.state.lower(),
        fingerprint=found.fingerprint,
        component=found.expression,
        models=found.models,
        table=found.table,
        partition=found.partition,
        fragment=found.fragment.fragment_id,
        file=found.fragment.path,
        rows=found.fragment.rows,
        attempts=found.attempts,
        max_attempts=limits.max_untried if failure and failure.is_untried else limits.max_attempts,
        losses=found.losses,
        max_losses=limits.max_losses,
        created_at=moment(found.created_at),
        kind="" if failure is None else failure.kind,
        error="" if failure is None else failure.error,
        exception="" if failure is None else failure.exception,
        operator="" if failure is None else failure.operator,
        expression="" if failure is None else failure.expression,
        failed_at=moment(found.failed_at),
        failed_worker=found.failed_worker,
        next_at=moment(found.next_at),
        holder=found.holder,
        lease_until=moment(found.lease_until),
        dropped_at=None if dropped is None else moment(dropped[0]),
        dropped_why=None if dropped is None else dropped[1],
        events=() if failure is None else failure.events,
        sample=() if rows is None else sample_values(rows),
        sample_file=sample_file or None,
        alike=found.alike,
    )
