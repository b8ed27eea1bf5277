"""Count tasks by the models that wait for them, in one pass over the queue.

Models wait for components, of which there are far fewer than tasks. So the catalog counts by component and table, and this
module derives models, clients and priorities. All indexes of the pass are in the order of memo keys: successive lookups are on neighbouring pages,
not on random ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, or_, select

from warehouse.catalog import schema
from warehouse.catalog.task_rows import computes, is_current, waits_for
from warehouse.scheduling.task_states import IN_WORK, TaskState

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
    return _count(connection, schema.is_open())


def count_in_state(connection: Connection, state: TaskState) -> dict[Waiters, int]:
    """The number of tasks in a rare state, by the models that wait for them."""
    return _count(connection, schema.tasks.c.state == state, is_rare=True)


def count_wanted(connection: Connection, *, queued_only: bool, due_by: float = math.inf) -> int:
    """The number of wanted tasks that are queued and due by then, and those leased unless ``queued_only``."""
    tasks = schema.tasks.c
    where = [schema.is_open()]
    if due_by < math.inf:
        where.append(or_(tasks.not_before <= due_by, tasks.state == TaskState.LEASED))
    count = sum(_count(connection, *where).values())
    if not queued_only:
        return count
    return count - sum(count_in_state(connection, TaskState.LEASED).values())


def open_work(connection: Connection) -> tuple[OpenTasks, ...]:
    """All wanted tasks that are queued or leased, by component and by the models that wait for them."""
    tasks, memos, fragments = schema.tasks.c, schema.memos.c, schema.fragments.c
    place = (memos.fingerprint, tasks.table_name)
    query = (
        select(*place, func.count(), func.sum(fragments.rows), func.min(tasks.created_at))
        .select_from(schema.tasks)
        .join(schema.memos, computes())
        .join(schema.fragments, fragments.id == memos.fragment)
        .where(schema.is_open(), schema.is_unready(), _is_current())
        .group_by(*place)
    )
    waiters, found = load_waiters(connection), []
    for fingerprint, table, count, rows, since in connection.execute(_along_open_tasks(query)):
        if models := waiters.get((fingerprint, table)):
            found.append(OpenTasks(models, fingerprint, count, int(rows), since))
    return tuple(found)


def count_fragments(connection: Connection) -> int:
    """The number of fragments with a queued or leased task that some model waits for."""
    memos = schema.memos.c
    here = (
        select(memos.memo_key)
        .select_from(schema.memos.join(schema.tasks, computes()).join(schema.waits, waits_for()))
        .where(memos.fragment == schema.fragments.c.id, memos.state.in_(IN_WORK), schema.is_unready())
        .where(schema.is_open(), is_current())
        .with_hint(schema.memos, "INDEXED BY ix_memos_unready", "sqlite")
        .correlate(schema.fragments)
    )
    return int(connection.execute(select(func.count()).select_from(schema.fragments).where(here.exists())).scalar_one())


def load_waiters(connection: Connection) -> dict[tuple[str, str], Waiters]:
    """The live models that wait for tasks, by component and table."""
    waits, models = schema.waits.c, schema.models.c
    query = select(waits.fingerprint, waits.table_name, waits.model).join(schema.models, models.id == waits.model)
    listed: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for fingerprint, table, model in connection.execute(query.where(models.live.is_(True))):
        listed[fingerprint, table].add(model)
    return {place: frozenset(ids) for place, ids in listed.items()}


def _count(connection: Connection, *where: ColumnElement[bool], is_rare: bool = False) -> dict[Waiters, int]:
    """The number of tasks for which ``where`` holds, by the models that wait for them."""
    tasks, memos = schema.tasks.c, schema.memos.c
    place = (memos.fingerprint, tasks.table_name)
    query = select(*place, func.count()).select_from(schema.tasks).join(schema.memos, computes())
    query = query.where(*where, schema.is_unready(), _is_current()).group_by(*place)
    waiters, found = load_waiters(connection), defaultdict[Waiters, int](int)
    for fingerprint, table, count in connection.execute(query if is_rare else _along_open_tasks(query)):
        if models := waiters.get((fingerprint, table)):
            found[models] += count
    return dict(found)


def _is_current() -> ColumnElement[bool]:
    """:func:`warehouse.catalog.task_rows.is_current` for many memos: the current fragments are listed once."""
    members, manifests = schema.manifest_fragments.c, schema.manifests.c
    current = select(members.fragment).join(schema.manifests, manifests.id == members.manifest)
    return schema.memos.c.fragment.in_(current.where(manifests.current.is_(True)))


def _along_open_tasks(query: Any) -> Any:
    # SQLite would prefer the unique index: it does not know that the rows of this one are in the needed order.
    query = query.with_hint(schema.tasks, "INDEXED BY ix_tasks_open", "sqlite")
    return query.with_hint(schema.memos, "INDEXED BY ix_memos_unready_memo_key", "sqlite")
