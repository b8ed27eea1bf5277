"""Read the quarantine: tasks, groups of equal failures, and the details of a task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Subquery, and_, case, func, select

from transforms.errors import InputError
from transforms.graphs.graph import component_from_document, raw_columns
from transforms.names import is_whole_number
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.task_rows import computes, is_current, waits_for
from warehouse.errors import UnknownTask
from warehouse.quarantine.query import (
    EXCEPTION,
    KIND,
    OPEN_STATES,
    OPERATOR,
    PLACED,
    TaskQuery,
    check_query,
    conditions,
    is_over,
)
from warehouse.queue.failures import Failure
from warehouse.scheduling.task_states import TaskState
from warehouse.tables.manifests import fragments_by_row
from warehouse.tables.raw import read_raw
from warehouse.tables.table import Fragment
from warehouse.warehouse import Warehouse

#: The most candidates in an error.
_MOST_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class Waiting:
    """A model that waits for a task."""

    model: str
    version: int
    client: str
    priority: int


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Tasks of one component whose last attempts failed with the same kind, operator and exception.

    Attributes:
        fingerprint: The component.
        expression: Its expression.
        kind: The kind of the failure.
        operator: The operator that failed.
        exception: The exception's type.
        error: The last error.
        tasks: The number of tasks.
        states: The same by state.
        tables: Their tables.
        partitions: The number of their partitions.
        failed_at: The time of the last failure in epoch seconds; 0.0 without one.
        example: The task that failed last.
        models: The models that wait for at least one of them.
    """

    fingerprint: str
    expression: str
    kind: str
    operator: str
    exception: str
    error: str
    tasks: int
    states: Mapping[TaskState, int]
    tables: tuple[str, ...]
    partitions: int
    failed_at: float
    example: int
    models: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task in a list; ``next_at``: the end of its backoff in epoch seconds, None if it is due."""

    task_id: int
    state: TaskState
    fingerprint: str
    expression: str
    table: str
    partition: str
    kind: str
    operator: str
    exception: str
    error: str
    attempts: int
    losses: int
    failed_at: float | None
    next_at: float | None


@dataclass(frozen=True, slots=True)
class TaskDetail:
    """The details of one task; times are epoch seconds.

    Attributes:
        failure: The failure of its last failed attempt.
        failed_at: The time of that.
        failed_worker: The worker of that.
        next_at: The end of its backoff; None if it is due.
        holder: The worker that holds it, until ``lease_until``.
        dropped: When and why it was dropped.
        alike: The number of other quarantined tasks of the component.
    """

    task_id: int
    state: TaskState
    fingerprint: str
    expression: str
    columns: tuple[str, ...]
    table: str
    partition: str
    fragment: Fragment
    models: tuple[Waiting, ...]
    attempts: int
    losses: int
    created_at: float
    failure: Failure | None = None
    failed_at: float | None = None
    failed_worker: str | None = None
    next_at: float | None = None
    holder: str | None = None
    lease_until: float | None = None
    dropped: tuple[float, str] | None = None
    alike: int = field(default=0, kw_only=True)


def quarantine_groups(
    warehouse: Warehouse, query: TaskQuery | None = None, *, limit: int | None = None, offset: int = 0
) -> tuple[TaskGroup, ...]:
    """Groups of equal failures, most tasks first. Raises what :func:`~warehouse.quarantine.query.check_query` raises."""
    query = query or TaskQuery()
    with warehouse.catalog.read() as connection:
        check_query(connection, query)
        return read_groups(connection, conditions(connection, query), limit=limit, offset=offset)


def quarantine_tasks(
    warehouse: Warehouse, query: TaskQuery | None = None, *, limit: int | None = None, offset: int = 0
) -> tuple[TaskRow, ...]:
    """Single tasks, by number. Raises what :func:`~warehouse.quarantine.query.check_query` raises."""
    query, now = query or TaskQuery(), warehouse.clock()
    tasks, failures = schema.tasks.c, schema.failures.c
    listed = (tasks.id, tasks.state, tasks.table_name, tasks.partition, tasks.attempts, tasks.losses, tasks.not_before,
              schema.components.c.fingerprint, schema.components.c.expression, KIND.label("kind"),
              OPERATOR.label("operator"), EXCEPTION.label("exception"), failures.error, failures.failed_at)  # fmt: skip
    with warehouse.catalog.read() as connection:
        check_query(connection, query)
        order = (tasks.id, schema.components.c.fingerprint)
        found = select(*listed).select_from(PLACED).where(*conditions(connection, query)).order_by(*order)
        rows = connection.execute(found.limit(limit).offset(offset)).all()
    return tuple(
        TaskRow(row.id, TaskState(row.state), row.fingerprint, row.expression, row.table_name, row.partition, row.kind,
                row.operator, row.exception, row.error or "", row.attempts, row.losses, row.failed_at, _next_at(row, now))
        for row in rows
    )  # fmt: skip


def _next_at(row: Any, now: float) -> float | None:
    return row.not_before if row.state == TaskState.QUEUED and row.not_before > now else None


def read_groups(
    connection: Connection, where: Sequence[ColumnElement[bool]], *, limit: int | None = None, offset: int = 0
) -> tuple[TaskGroup, ...]:
    """:func:`quarantine_groups` of the rows of ``PLACED`` for which these conditions hold, inside a transaction."""
    rows = _with_ranks(where)
    key, total = [rows.c[name] for name in _KEY], func.count().label("total")
    last = rows.c.rank == 1
    counts = [func.sum(case((rows.c.state == state, 1), else_=0)) for state in TaskState]
    query = (
        select(*key, total, func.count(func.distinct(rows.c.table_name + "/" + rows.c.partition)),
               func.max(rows.c.failed_at), func.max(case((last, rows.c.id))), func.max(case((last, rows.c.error))), *counts)
        .group_by(*key).order_by(total.desc(), *key).limit(limit).offset(offset)
    )  # fmt: skip
    found = connection.execute(query).all()
    listed = sorted({row.fingerprint for row in found})
    tables: defaultdict[_Key, set[str]] = defaultdict(set)
    models, expressions = _models_of(connection, rows, listed), dict[str, str]()
    for chunk in chunks(listed):
        mine = one_of(connection, rows.c.fingerprint, chunk)
        for *group, table in connection.execute(select(*key, rows.c.table_name).where(mine).distinct()):
            tables[tuple(group)].add(table)
        of = schema.components.c
        known = select(of.fingerprint, of.expression).where(one_of(connection, of.fingerprint, chunk))
        expressions.update((fingerprint, text) for fingerprint, text in connection.execute(known))
    groups = []
    for fingerprint, kind, operator, exception, tasks, places, failed_at, example, error, *states in found:
        named = (fingerprint, kind, operator, exception)
        by_state = {state: int(count) for state, count in zip(TaskState, states, strict=True) if count}
        groups.append(TaskGroup(fingerprint, expressions[fingerprint], kind, operator, exception, error or "", tasks, by_state,
                                tuple(sorted(tables[named])), places, failed_at, example, models.get(named, ())))  # fmt: skip
    return tuple(groups)


#: The key of a group.
_KEY = ("fingerprint", "kind", "operator", "exception")
_Key = tuple[str, ...]


def _with_ranks(where: Sequence[ColumnElement[bool]]) -> Subquery:
    """The tasks with their group key; ``rank`` 1 is the task of a group that failed last."""
    tasks, failures = schema.tasks.c, schema.failures.c
    rows = (
        select(tasks.id, is_current().label("is_current"), tasks.state, tasks.table_name, tasks.partition, schema.memos.c.fingerprint,
               KIND.label("kind"), OPERATOR.label("operator"), EXCEPTION.label("exception"), failures.error,
               func.coalesce(failures.failed_at, 0.0).label("failed_at"))
        .select_from(PLACED).where(*where).subquery()
    )  # fmt: skip
    key = [rows.c[name] for name in _KEY]
    rank = func.row_number().over(partition_by=key, order_by=(rows.c.failed_at.desc(), rows.c.id))
    return select(rows, rank.label("rank")).subquery()


def _models_of(connection: Connection, rows: Subquery, fingerprints: Sequence[str]) -> dict[_Key, tuple[Waiting, ...]]:
    """The live models that wait for each group's tasks, most urgent first."""
    models, waits = schema.models.c, schema.waits.c
    found: defaultdict[_Key, list[Waiting]] = defaultdict(list)
    for chunk in chunks(fingerprints):
        query = (
            select(*(rows.c[name] for name in _KEY), *_WAITING)
            .join(schema.waits, and_(waits.fingerprint == rows.c.fingerprint, waits.table_name == rows.c.table_name))
            .join(schema.models, models.id == waits.model)
            .where(models.live.is_(True), rows.c.is_current, one_of(connection, rows.c.fingerprint, chunk))
            .distinct()
            .order_by(models.priority.desc(), models.name)
        )
        for row in connection.execute(query):
            found[tuple(row[: len(_KEY)])].append(Waiting(*row[len(_KEY) :]))
    return {key: tuple(waiting) for key, waiting in found.items()}


_WAITING = (schema.models.c.name, schema.models.c.version, schema.models.c.client, schema.models.c.priority)


def _waiting(connection: Connection, key: str) -> tuple[Waiting, ...]:
    """The live models that wait for the memo, most urgent first."""
    models, waits = schema.models.c, schema.waits.c
    query = (
        select(*_WAITING)
        .select_from(schema.tasks)
        .join(schema.memos, computes())
        .join(schema.waits, waits_for())
        .join(schema.models, waits.model == models.id)
        .where(models.live.is_(True), schema.memos.c.memo_key == key, is_current())
        .distinct()
        .order_by(models.priority.desc(), models.name)
    )
    return tuple(Waiting(*row) for row in connection.execute(query))


def get_task(warehouse: Warehouse, named: str, *, partition: str | None = None) -> TaskDetail:
    """The task with this number, or else the only one of a component with this fingerprint prefix.

    ``partition`` selects one of several. Raises :class:`UnknownTask` for none, and :class:`InputError` with the candidates
    for several, such as those that a lost worker leased together and that still have one number.
    """
    now = warehouse.clock()
    with warehouse.catalog.read() as connection:
        return _detail(connection, _find(connection, named, partition), now)


def _find(connection: Connection, named: str, partition: str | None) -> str:
    """The key of the memo."""
    tasks, of = schema.tasks.c, schema.components.c.fingerprint
    here = [] if partition is None else [is_over(partition)]
    listed = select(tasks.id, of, tasks.table_name, tasks.partition, tasks.state, schema.memos.c.memo_key)
    listed = listed.select_from(PLACED).order_by(of, tasks.id).limit(_MOST_CANDIDATES + 1)
    rows: Sequence[Any] = ()
    if is_number := is_whole_number(named) and int(named) < 2**63:
        rows = connection.execute(listed.where(tasks.id == int(named), *here)).all()
    if not rows:
        is_number = False
        query = TaskQuery(states=(*OPEN_STATES, TaskState.DROPPED), component=named, partition=partition)
        rows = connection.execute(listed.where(*conditions(connection, query))).all()
    if not rows:
        raise UnknownTask("no such task", where="quarantine", value=f"{named} over {partition}" if partition else named,
                          allowed="a task's number, or the first digits of the fingerprint of a component that failed",
                          next_step="headrace tasks list --each")  # fmt: skip
    if len(rows) > 1:
        shown = [f"{number} ({fingerprint[:12]} over {table} {part}, {state.lower()})" for number, fingerprint, table, part, state, _ in rows]  # fmt: skip
        more = ["…"] if len(rows) > _MOST_CANDIDATES else []
        raise InputError("a task must be given unambiguously: several match", where="quarantine", value=named,
                         allowed="one of " + ", ".join([*shown[:_MOST_CANDIDATES], *more]),
                         next_step="give its component's fingerprint, and --partition" if is_number
                         else "give its number, or --partition")  # fmt: skip
    return str(rows[0].memo_key)


def _detail(connection: Connection, key: str, now: float) -> TaskDetail:
    failures, of = schema.failures.c, schema.components.c
    row = connection.execute(
        select(schema.tasks, of.fingerprint, of.expression, of.document.label("component"), failures.document,
               failures.worker.label("failed_worker"), failures.failed_at, schema.memos.c.cause,
               schema.memos.c.changed_at.label("memo_changed_at"))
        .select_from(PLACED).where(schema.memos.c.memo_key == key)
    ).one()  # fmt: skip
    stored = fragments_by_row(connection, [row.fragment])
    others = conditions(connection, TaskQuery(component=row.fingerprint))
    alike = connection.execute(
        select(func.count()).select_from(PLACED).where(*others, schema.memos.c.memo_key != key)
    ).scalar_one()
    leased = row.state == TaskState.LEASED
    return TaskDetail(
        task_id=row.id,
        state=TaskState(row.state),
        fingerprint=row.fingerprint,
        expression=row.expression,
        columns=tuple(column.name for column in raw_columns(component_from_document(row.component))),
        table=row.table_name,
        partition=row.partition,
        fragment=stored[row.fragment],
        models=_waiting(connection, key),
        attempts=row.attempts,
        losses=row.losses,
        created_at=row.created_at,
        failure=None if row.document is None else Failure.from_document(row.document),
        failed_at=row.failed_at,
        failed_worker=row.failed_worker,
        next_at=_next_at(row, now),
        holder=row.worker if leased else None,
        lease_until=row.lease_until if leased else None,
        dropped=(row.memo_changed_at, row.cause) if row.state == TaskState.DROPPED else None,
        alike=alike,
    )


def task_sample(warehouse: Warehouse, task: TaskDetail) -> pa.Table:
    """The sample of the task's failure: events with the raw columns that its component reads.

    A sample that was too large to be kept is read from the raw data. Raises :class:`UnknownTask` if the failure
    has no events, and what :func:`~warehouse.tables.raw.read_raw` raises.
    """
    failure = task.failure
    kept = None if failure is None else failure.sample_table()
    if kept is not None:
        return kept
    if failure is None or not failure.events:
        raise UnknownTask("no sample of events is known", where=f"task {task.task_id}",
                          value="" if failure is None else failure.error,
                          next_step=f"read the fragment: {task.fragment.path}")  # fmt: skip
    return read_raw(warehouse.storage, task.fragment, list(task.columns)).take(pa.array(failure.events, pa.int64()))
