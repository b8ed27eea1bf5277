"""Count queued and leased memos by the models that wait for them.

Models wait for components, of which there are far fewer than memos. So the catalog counts by component and table, and this
module derives models, clients and priorities. The catalog returns the tasks of each component's pending memos as one text, from
an index alone; most components have the same tasks, and each such text is summed once. Memory grows with the number of tasks,
of which there is about one per fragment.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Text, cast, exists, func, or_, select

from warehouse.catalog import schema
from warehouse.catalog.fragment_rows import unit_rows
from warehouse.catalog.task_rows import computes, is_current
from warehouse.scheduling.task_states import MemoState, TaskState

#: Ids of live models that wait for the same tasks.
Waiters = frozenset[int]

#: Conditions on a task that it is queued or leased, over current data, for many tasks: the units are listed once.
_IS_OPEN = (
    schema.tasks.c.state.in_((TaskState.QUEUED, TaskState.LEASED)),
    or_(*(schema.tasks.c.fragment.in_(rows) for rows in unit_rows())),
)


@dataclass(frozen=True, slots=True)
class WaitingModel:
    """The client and the priority of a live model."""

    client: str
    priority: int


@dataclass(frozen=True, slots=True)
class OpenTasks:
    """Unfinished tasks of one component that the same models wait for.

    Attributes:
        waiters: The models.
        fingerprint: The component.
        tasks: The number of tasks.
        rows: The sum of their fragments' rows.
        since: When the oldest was queued, in epoch seconds.
    """

    waiters: Waiters
    fingerprint: str
    tasks: int
    rows: int
    since: float


def live_models(connection: Connection) -> dict[int, WaitingModel]:
    """The live models by id."""
    of = schema.models.c
    query = select(of.id, of.client, of.priority).where(of.live.is_(True))
    return {model: WaitingModel(client, priority) for model, client, priority in connection.execute(query)}


def clients_of(waiters: Waiters, models: Mapping[int, WaitingModel]) -> frozenset[str]:
    """The clients of these models."""
    return frozenset(models[model].client for model in waiters)


def count_open(connection: Connection) -> dict[Waiters, int]:
    """The number of queued or leased tasks, by the models that wait for them."""
    waiters, found = load_waiters(connection), defaultdict[Waiters, int](int)
    for fingerprint, table, count, _, _ in _pending(connection):
        if models := waiters.get((fingerprint, table)):
            found[models] += count
    return dict(found)


def count_in_state(connection: Connection, state: TaskState) -> dict[Waiters, int]:
    """The number of tasks in a rare state, by the models that wait for them."""
    return _count(connection, schema.tasks.c.state == state)


def count_wanted(connection: Connection, *, queued_only: bool, due_by: float = math.inf) -> int:
    """The number of wanted tasks that are queued and due by then, and those leased unless ``queued_only``."""
    tasks = schema.tasks.c
    count = sum(count_open(connection).values())
    if due_by < math.inf:
        later = (tasks.state == TaskState.QUEUED, tasks.not_before > due_by)
        count -= sum(_count(connection, *later).values())
    if queued_only:
        count -= sum(count_in_state(connection, TaskState.LEASED).values())
    return count


def open_work(connection: Connection) -> tuple[OpenTasks, ...]:
    """All wanted tasks that are queued or leased, by component and by the models that wait for them."""
    waiters = load_waiters(connection)
    return tuple(
        OpenTasks(waiters[fingerprint, table], fingerprint, count, int(rows), since)
        for fingerprint, table, count, rows, since in _pending(connection)
        if (fingerprint, table) in waiters
    )


class _OpenTask(NamedTuple):
    """A queued or leased task over current data."""

    table: str
    rows: int
    since: float


def _pending(connection: Connection) -> Iterator[tuple[str, str, int, int, float]]:
    """Pending memos over current data by component and table: their number, rows, and when the oldest was queued."""
    tasks = _open_tasks(connection)
    memos, waited = schema.memos.c, select(schema.waits.c.fingerprint).distinct().subquery()
    listed = (
        select(func.aggregate_strings(cast(memos.task, Text), ","))
        .where(memos.fingerprint == waited.c.fingerprint, memos.state == MemoState.PENDING)
        .scalar_subquery()
    )
    known: dict[str, dict[str, tuple[int, int, float]]] = {}
    for fingerprint, numbers in connection.execute(select(waited.c.fingerprint, listed)):
        if numbers is None:
            continue
        if numbers not in known:
            known[numbers] = _sum_by_table(tasks[task] for task in map(int, numbers.split(",")) if task in tasks)
        for table, sums in known[numbers].items():
            yield fingerprint, table, *sums


def _open_tasks(connection: Connection) -> dict[int, _OpenTask]:
    tasks, fragments = schema.tasks.c, schema.fragments.c
    query = select(tasks.id, tasks.table_name, fragments.rows, tasks.created_at)
    query = query.join(schema.fragments, fragments.id == tasks.fragment).where(*_IS_OPEN)
    return {task: _OpenTask(*rest) for task, *rest in connection.execute(query)}


def _sum_by_table(tasks: Iterable[_OpenTask]) -> dict[str, tuple[int, int, float]]:
    sums: dict[str, tuple[int, int, float]] = {}
    for table, rows, since in tasks:
        count, total, oldest = sums.get(table, (0, 0, math.inf))
        sums[table] = (count + 1, total + rows, min(oldest, since))
    return sums


def count_fragments(connection: Connection) -> int:
    """The number of fragments with a queued or leased task of a component that some model waits for."""
    tasks, memos = schema.tasks.c, schema.memos.c
    is_waited_for = exists().where(computes(), memos.fingerprint.in_(select(schema.waits.c.fingerprint)))
    query = select(func.count(tasks.fragment.distinct())).where(*_IS_OPEN, is_waited_for)
    return int(connection.execute(query).scalar_one())


def load_waiters(connection: Connection) -> dict[tuple[str, str], Waiters]:
    """The live models that wait for tasks, by component and table."""
    waits, models = schema.waits.c, schema.models.c
    query = select(waits.fingerprint, waits.table_name, waits.model).join(schema.models, models.id == waits.model)
    listed: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for fingerprint, table, model in connection.execute(query.where(models.live.is_(True))):
        listed[fingerprint, table].add(model)
    return {place: frozenset(ids) for place, ids in listed.items()}


def _count(connection: Connection, *where: ColumnElement[bool]) -> dict[Waiters, int]:
    """The number of the few tasks for which ``where`` holds, by the models that wait for them."""
    tasks, memos = schema.tasks.c, schema.memos.c
    place = (memos.fingerprint, tasks.table_name)
    query = select(*place, func.count()).select_from(schema.tasks).join(schema.memos, computes())
    waiters, found = load_waiters(connection), defaultdict[Waiters, int](int)
    for fingerprint, table, count in connection.execute(query.where(*where, is_current()).group_by(*place)):
        if models := waiters.get((fingerprint, table)):
            found[models] += count
    return dict(found)
