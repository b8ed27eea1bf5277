"""Queries of the quarantine, as a value and as SQL.

The quarantine lists the tasks that are failed or dropped, those whose last attempt failed and that wait for the next one or
run it, and leased tasks that lost a worker before.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, get_args

from sqlalchemy import ColumnElement, Connection, case, func, or_, select, union

from transforms.errors import InputError, listed, nearest
from transforms.operators import REGISTRY
from warehouse.catalog import schema
from warehouse.catalog.catalog import one_of
from warehouse.catalog.task_rows import computes, wanted
from warehouse.errors import UnknownComponent, UnknownTask
from warehouse.queue.failures import FailureKind
from warehouse.scheduling.task_states import TaskState
from warehouse.search.names import check_names
from warehouse.search.query import ComponentQuery
from warehouse.search.sql import starts_with
from warehouse.tables.merges import merged_with_partition

#: The states of a task that is not done and not dropped.
OPEN_STATES = (TaskState.FAILED, TaskState.QUEUED, TaskState.LEASED)


#: The text of a query without conditions.
EVERYTHING = "all of them"


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Conditions on quarantined tasks; all given ones must hold.

    Attributes:
        ids: The tasks' numbers; without other conditions.
        states: Their states; empty for all but DROPPED.
        client: A client that waits for the task.
        model: A model that waits for the task.
        table: Its table.
        partition: Its partition, or one of those of its merged fragment.
        component: A prefix of its component's fingerprint.
        operator: The operator of its last failure.
        kind: The kind of its last failure.
        exception: The exception of its last failure.

    Raises :class:`InputError` for conditions that no task can fulfil.
    """

    ids: tuple[int, ...] = ()
    states: tuple[TaskState, ...] = ()
    client: str | None = None
    model: str | None = None
    table: str | None = None
    partition: str | None = None
    component: str | None = None
    operator: str | None = None
    kind: str | None = None
    exception: str | None = None

    def __post_init__(self) -> None:
        if self.ids and any(getattr(self, field.name) for field in fields(self) if field.name != "ids"):
            raise InputError("tasks must be given by numbers or by conditions, not by both", where="quarantine",
                             value=self.text, next_step="give the numbers alone")  # fmt: skip
        if TaskState.DONE in self.states:
            raise InputError("state must be one of quarantined tasks", where="state", value="done",
                             allowed=", ".join(state.lower() for state in (*OPEN_STATES, TaskState.DROPPED)))  # fmt: skip
        if self.kind is not None and self.kind not in get_args(FailureKind):
            raise InputError(
                "no such kind of failure", where="kind", value=self.kind, allowed=", ".join(get_args(FailureKind))
            )
        digits = (self.component or "0").lower()
        if not digits or set(digits) - set("0123456789abcdef") or len(digits) > 64:
            raise InputError("component must be 1 to 64 hexadecimal digits", where="component", value=self.component)
        object.__setattr__(self, "component", self.component and digits)

    @property
    def text(self) -> str:
        """The query as text."""
        if self.ids:
            shown = ", ".join(map(str, self.ids[:8])) + (", …" if len(self.ids) > 8 else "")
            return f"{'task' if len(self.ids) == 1 else 'tasks'} {shown}"
        given = [f"state {' or '.join(state.lower() for state in self.states)}"] if self.states else []
        named = (field.name for field in fields(self) if field.name not in ("ids", "states"))
        given += [f"{name} {getattr(self, name)}" for name in named if getattr(self, name) is not None]
        return ", ".join(given) or EVERYTHING


#: A memo with its task, its component and, where there is one, its last failure.
PLACED = (
    schema.tasks.join(schema.memos, computes())
    .join(schema.components, schema.components.c.fingerprint == schema.memos.c.fingerprint)
    .outerjoin(schema.failures, schema.failures.c.task == schema.tasks.c.id)
)

#: Columns of the last failure of a row of :data:`PLACED`.
KIND: ColumnElement[str] = func.coalesce(schema.failures.c.kind, case((schema.tasks.c.losses > 0, "lost"), else_=""))
OPERATOR: ColumnElement[str] = func.coalesce(schema.failures.c.operator, "")
EXCEPTION: ColumnElement[str] = func.coalesce(schema.failures.c.exception, "")


def conditions(connection: Connection, query: TaskQuery) -> list[ColumnElement[bool]]:
    """The conditions on a row of :data:`PLACED`."""
    tasks, memos = schema.tasks.c, schema.memos.c
    if query.ids:
        return [one_of(connection, tasks.id, query.ids)]
    # A sum is in no index: SQLite would otherwise scan the whole quarantine for every task of a component.
    found: list[ColumnElement[bool]] = [
        (tasks.id + 0).in_(_quarantined()),
        tasks.state.in_(query.states or OPEN_STATES),
    ]
    given: list[tuple[ColumnElement[Any], str | None]] = [
        (tasks.table_name, query.table),
        (OPERATOR, query.operator),
        (KIND, query.kind),
        (EXCEPTION, query.exception),
    ]
    found += [column == value for column, value in given if value is not None]
    if query.partition is not None:
        found.append(is_over(query.partition))
    if query.component is not None:
        found.append(starts_with(memos.fingerprint, query.component))
    models = schema.models.c
    asked: list[ColumnElement[bool]] = [] if query.client is None else [models.client == query.client]
    asked += [] if query.model is None else [models.name == query.model]
    if asked:
        found.append(wanted(*asked))
    return found


def is_over(partition: str) -> ColumnElement[bool]:
    """The condition on a task that its fragment is in this partition, or merged with parts in it."""
    return or_(schema.tasks.c.partition == partition, _is_merged_over(partition))


def _is_merged_over(partition: str) -> ColumnElement[bool]:
    return schema.tasks.c.fragment.in_(merged_with_partition(schema.manifests.c.partition == partition))


def _quarantined() -> Any:
    """The ids of the quarantined tasks; each part uses an index."""
    of = schema.tasks.c
    return union(
        select(of.id).where(of.state.in_((TaskState.FAILED, TaskState.DROPPED))),
        select(schema.failures.c.task),
        select(of.id).where(of.state == TaskState.LEASED, of.losses > 0),
    )


def check_query(connection: Connection, query: TaskQuery) -> None:
    """Raise for names that the catalog does not have, with the nearest ones, instead of an empty answer.

    :class:`UnknownTask` for numbers and partitions, :class:`UnknownComponent`; what :func:`~warehouse.search.names.check_names` raises
    for tables, clients and models; :class:`InputError` for operators.
    """
    check_names(connection, ComponentQuery(table=query.table, client=query.client, model=query.model))
    tasks = schema.tasks.c
    if query.ids:
        known = set(connection.execute(select(tasks.id).where(one_of(connection, tasks.id, query.ids))).scalars())
        if unknown := sorted(set(query.ids) - known):
            raise UnknownTask("no such task, or it is done", value=listed([str(task) for task in unknown]),
                              next_step="headrace tasks list --each shows their numbers")  # fmt: skip
    if query.component is not None:
        of = schema.components.c.fingerprint
        if connection.execute(select(of).where(starts_with(of, query.component)).limit(1)).first() is None:
            raise UnknownComponent(
                "no component has this fingerprint prefix", value=query.component, next_step="headrace graphs ls"
            )
    if query.operator is not None:
        failed = set(connection.execute(select(schema.failures.c.operator).distinct()).scalars())
        if query.operator not in failed | {operator.name for operator in REGISTRY}:
            raise InputError("no such operator", where="operator", value=query.operator,
                             allowed=nearest(query.operator, failed - {""}))  # fmt: skip
    if query.partition is not None:
        found = (tasks.partition == query.partition, _is_merged_over(query.partition))
        if all(connection.execute(select(tasks.id).where(one).limit(1)).first() is None for one in found):
            parts = set(
                connection.execute(select(tasks.partition).where(tasks.id.in_(_quarantined())).distinct()).scalars()
            )
            raise UnknownTask(
                "no quarantined task has this partition", value=query.partition, allowed=nearest(query.partition, parts)
            )
