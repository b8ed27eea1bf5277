"""Count tasks by the models that wait for them, in one pass over the queue.

A million tasks have few different sets of waiting models. So the catalog counts by set, and this module derives clients
and priorities. All indexes of the pass are in the order of memo keys: successive lookups are on neighbouring pages,
not on random ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Subquery, Text, cast, exists, func, or_, select

from warehouse.catalog import schema
from warehouse.scheduling.task_states import MEMO_OF_TASK, TaskState

#: The states of memos with unfinished tasks.
_IN_WORK = (MEMO_OF_TASK[TaskState.QUEUED], MEMO_OF_TASK[TaskState.LEASED])

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
    tasks, waiting = schema.tasks.c, _waiting()
    query = (
        select(waiting.c.models, func.count())
        .join(schema.tasks, tasks.memo_key == waiting.c.memo_key)
        .where(schema.is_open())
        .group_by(waiting.c.models)
    )
    return _by_waiters(connection.execute(_along_open_tasks(query)))


def count_in_state(connection: Connection, state: TaskState) -> dict[Waiters, int]:
    """The number of tasks in a rare state, by the models that wait for them."""
    tasks, waits = schema.tasks.c, schema.waits.c
    models = select(_listed(waits.model)).where(waits.memo_key == tasks.memo_key, _is_live(waits.model))
    each = select(models.scalar_subquery().label("models")).where(tasks.state == state).subquery()
    query = select(each.c.models, func.count()).where(each.c.models.is_not(None)).group_by(each.c.models)
    return _by_waiters(connection.execute(query))


def count_wanted(connection: Connection, *, queued_only: bool, due_by: float = math.inf) -> int:
    """The number of wanted tasks that are queued and due by then, and those leased unless ``queued_only``."""
    tasks, waits = schema.tasks.c, schema.waits.c
    wanted = exists().where(waits.memo_key == tasks.memo_key, _is_live(waits.model))
    query = select(func.count()).select_from(schema.tasks).where(wanted)
    in_time = (
        query if due_by == math.inf else query.where(or_(tasks.not_before <= due_by, tasks.state == TaskState.LEASED))
    )
    count = int(connection.execute(_along_open_tasks(in_time.where(schema.is_open()))).scalar_one())
    if not queued_only:
        return count
    return count - int(connection.execute(query.where(tasks.state == TaskState.LEASED)).scalar_one())


def open_work(connection: Connection) -> tuple[OpenTasks, ...]:
    """All wanted tasks that are queued or leased, by component and by the models that wait for them."""
    tasks, memos, fragments, waiting = schema.tasks.c, schema.memos.c, schema.fragments.c, _waiting()
    query = (
        select(waiting.c.models, memos.fingerprint, func.count(), func.sum(fragments.rows), func.min(tasks.created_at))
        .join(schema.tasks, tasks.memo_key == waiting.c.memo_key)
        .join(schema.memos, memos.memo_key == tasks.memo_key)
        .join(schema.fragments, fragments.id == memos.fragment)
        .where(schema.is_open(), schema.is_unready())
        .group_by(waiting.c.models, memos.fingerprint)
    )
    query = _along_open_tasks(query).with_hint(schema.memos, "INDEXED BY ix_memos_unready_memo_key", "sqlite")
    return tuple(
        OpenTasks(_waiters(models), fingerprint, count, int(rows), since)
        for models, fingerprint, count, rows, since in connection.execute(query)
    )


def count_fragments(connection: Connection) -> int:
    """The number of fragments with a queued or leased task that some model waits for."""
    tasks, memos, waits = schema.tasks.c, schema.memos.c, schema.waits.c
    is_wanted = exists().where(waits.memo_key == memos.memo_key)
    is_open = exists().where(tasks.memo_key == memos.memo_key, schema.is_open())
    here = (
        select(memos.memo_key)
        .where(memos.fragment == schema.fragments.c.id, memos.state.in_(_IN_WORK), schema.is_unready())
        .where(is_open, is_wanted)
        .with_hint(schema.memos, "INDEXED BY ix_memos_unready", "sqlite")
        .correlate(schema.fragments)
    )
    return int(connection.execute(select(func.count()).select_from(schema.fragments).where(here.exists())).scalar_one())


def _waiting() -> Subquery:
    """The memos that live models wait for, with those models."""
    waits = schema.waits.c
    query = select(waits.memo_key, _listed(waits.model).label("models"))
    return query.where(_is_live(waits.model)).group_by(waits.memo_key).subquery("waiting")


def _is_live(model: ColumnElement[int]) -> ColumnElement[bool]:
    # A sum is in no index: SQLite would otherwise look up the waits of each live model, and sort them by memo key.
    return (model + 0).in_(select(schema.models.c.id).where(schema.models.c.live.is_(True)))


def _listed(model: ColumnElement[int]) -> ColumnElement[str]:
    return func.aggregate_strings(cast(model, Text), ",")


def _along_open_tasks(query: Any) -> Any:
    # SQLite would prefer the unique index: it does not know that the rows of this one are in the needed order.
    return query.with_hint(schema.tasks, "INDEXED BY ix_tasks_open", "sqlite")


def _by_waiters(counted: Any) -> dict[Waiters, int]:
    found: defaultdict[Waiters, int] = defaultdict(int)
    for models, count in counted:
        found[_waiters(models)] += count
    return dict(found)


def _waiters(models: str) -> Waiters:
    return frozenset(map(int, models.split(",")))
