"""Count tasks by the models that wait for them, in one pass over the queue.

Models wait for components, of which there are far fewer than tasks. So the catalog counts by component and table, and this
module derives models, clients and priorities. A task is queued or leased exactly while its memo is pending, so one scan of an
index of pending memos, in the order of components, gives all figures but those of leases.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, func, or_, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.fragment_rows import unit_rows
from warehouse.catalog.task_rows import computes, is_current
from warehouse.scheduling.task_states import TaskState

#: Ids of live models that wait for the same tasks.
Waiters = frozenset[int]


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


def _pending(connection: Connection) -> Iterator[tuple[str, str, int, int, float]]:
    """Pending memos over current data by component and table: their number, rows, and when the oldest was queued."""
    memos, fragments = schema.memos.c, schema.fragments.c
    sums = (func.count(), func.sum(fragments.rows), func.min(memos.changed_at))
    query = select(memos.fingerprint, func.min(fragments.table_name), *sums, func.max(fragments.table_name))
    query = query.join(schema.fragments, fragments.id == memos.fragment).where(schema.is_pending(), _is_current())
    query = query.with_hint(schema.memos, "INDEXED BY ix_memos_pending", "sqlite")
    # Nearly all components are of one table. A group by table as well would sort all memos.
    several = []
    for fingerprint, table, count, rows, since, last in connection.execute(query.group_by(memos.fingerprint)):
        if table == last:
            yield fingerprint, table, count, rows, since
        else:
            several.append(fingerprint)
    place = (memos.fingerprint, fragments.table_name)
    each = select(*place, *sums).join(schema.fragments, fragments.id == memos.fragment).group_by(*place)
    for chunk in chunks(several):
        mine = (one_of(connection, memos.fingerprint, chunk), schema.is_pending(), _is_current())
        for row in connection.execute(each.where(*mine)):
            yield tuple(row)


def count_fragments(connection: Connection) -> int:
    """The number of fragments with a queued or leased task of a component that some model waits for."""
    memos = schema.memos.c
    query = select(func.count(memos.fragment.distinct())).where(schema.is_pending(), _is_current())
    query = query.where(memos.fingerprint.in_(select(schema.waits.c.fingerprint)))
    query = query.with_hint(schema.memos, "INDEXED BY ix_memos_pending", "sqlite")
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


def _is_current() -> ColumnElement[bool]:
    """:func:`warehouse.catalog.task_rows.is_current` for many memos: the units are listed once."""
    return or_(*(schema.memos.c.fragment.in_(rows) for rows in unit_rows()))
