"""Rows of ``tasks`` and their memos: new rows, splitting, moving to equal fragments, and deletion.

A task here is such a row. It has memos over one fragment; ``memos.task`` is the only record of which. Its state, attempts and
times are those of all of its memos. So a change of some of them splits the row first: those that change get a copy of it.
A claim on a memo (:mod:`warehouse.queue.tasks`) stays valid in both parts. The caller holds the write lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, exists, func, select

from warehouse.catalog import schema
from warehouse.catalog.bulk import update_rows
from warehouse.catalog.catalog import chunks, insert_numbered, one_of
from warehouse.scheduling.task_states import MemoState, TaskState

_OF = schema.tasks.c
#: The table and the partition of a fragment.
Place = tuple[str, str]


def new_tasks(connection: Connection, places: Mapping[int, Place], now: float) -> dict[int, int]:
    """Insert a queued task for each of these rows of ``fragments``; returns the tasks by fragment.

    The caller lets memos refer to them in the same transaction.
    """
    ordered = sorted(places.items())
    made = insert_numbered(connection, schema.tasks, [
        {"fragment": row, "table_name": table, "partition": partition, "state": TaskState.QUEUED, "fence": 0, "attempts": 0,
         "losses": 0, "not_before": 0.0, "created_at": now, "changed_at": now}
        for row, (table, partition) in ordered
    ])  # fmt: skip
    return {row: task for (row, _), task in zip(ordered, made, strict=True)}


def queue_again(connection: Connection, keys: Collection[str], now: float) -> None:
    """Make these memos pending, in a new task for each fragment."""
    of, placed = schema.memos.c, schema.fragments.c
    fragments: dict[str, int] = {}
    places: dict[int, Place] = {}
    query = select(of.memo_key, of.fragment, placed.table_name, placed.partition)
    query = query.join(schema.fragments, placed.id == of.fragment)
    for chunk in chunks(sorted(keys)):
        for key, fragment, *place in connection.execute(query.where(one_of(connection, of.memo_key, chunk))):
            fragments[key], places[fragment] = fragment, tuple(place)
    made = new_tasks(connection, places, now)
    rows = ({"memo_key": key, "task": made[fragment]} for key, fragment in fragments.items())
    update_rows(connection, schema.memos, "memo_key", rows, state=MemoState.PENDING)


def tasks_of(connection: Connection, keys: Iterable[str]) -> dict[str, int]:
    """The tasks of memos, by key, without memos that have none."""
    of = schema.memos.c
    found: dict[str, int] = {}
    for chunk in chunks(sorted(keys)):
        query = select(of.memo_key, of.task).where(one_of(connection, of.memo_key, chunk), of.task.is_not(None))
        found.update(tuple(row) for row in connection.execute(query))
    return found


def split(connection: Connection, groups: Iterable[Sequence[str]]) -> dict[str, int]:
    """Let no task have memos of two groups, or of one and of none; returns the task of each given memo, by key.

    The groups have different memos, given by key. If a group is all that a task has, the task stays as it is; else the
    groups get copies of its row, but for the largest one where the groups are all that it has.
    """
    parts: defaultdict[int, list[list[str]]] = defaultdict(list)
    listed = list(groups)
    after = tasks_of(connection, (key for group in listed for key in group))
    for group in listed:
        by_task: defaultdict[int, list[str]] = defaultdict(list)
        for key in group:
            if key in after:
                by_task[after[key]].append(key)
        for task, keys in by_task.items():
            parts[task].append(keys)
    sizes = count_members(connection, parts)
    moved: list[tuple[int, list[str]]] = []
    for task, several in parts.items():
        stays = max(several, key=len) if sum(map(len, several)) == sizes[task] else None
        moved += [(task, keys) for keys in several if keys is not stays]
    for copy, (_, keys) in zip(_copy(connection, [task for task, _ in moved]), moved, strict=True):
        after.update(dict.fromkeys(keys, copy))
    rows = ({"memo_key": key, "task": after[key]} for _, keys in moved for key in keys)
    update_rows(connection, schema.memos, "memo_key", rows)
    return after


def split_each(connection: Connection, keys: Iterable[str]) -> dict[str, int]:
    """Let each of these memos have a task of its own; returns the tasks by key."""
    return split(connection, ([key] for key in keys))


def move_memos(connection: Connection, fragments: Mapping[str, int]) -> None:
    """Let memos be computed from other rows of ``fragments``, where they have the same keys; ``fragments``: rows by key."""
    rows = ({"memo_key": key, "fragment": fragment} for key, fragment in fragments.items())
    update_rows(connection, schema.memos, "memo_key", rows)
    by_fragment: defaultdict[int, list[str]] = defaultdict(list)
    for key, fragment in fragments.items():
        by_fragment[fragment].append(key)
    moved = {task: fragments[key] for key, task in split(connection, by_fragment.values()).items()}
    places = _places(connection, set(moved.values()))
    update_rows(connection, schema.tasks, "id", (
        {"id": task, "fragment": fragment, "table_name": places[fragment][0], "partition": places[fragment][1]}
        for task, fragment in moved.items()
    ))  # fmt: skip


def delete_done(connection: Connection, tasks: Collection[int]) -> None:
    """Delete those of these tasks that have no memos any more."""
    failures = schema.failures
    is_done = ~exists().where(schema.memos.c.task == _OF.id)
    for chunk in chunks(sorted(tasks)):
        done = connection.execute(select(_OF.id).where(one_of(connection, _OF.id, chunk), is_done)).scalars().all()
        if done:
            connection.execute(delete(failures).where(one_of(connection, failures.c.task, done)))
            connection.execute(delete(schema.tasks).where(one_of(connection, _OF.id, done)))


def count_members(connection: Connection, tasks: Collection[int]) -> dict[int, int]:
    """The number of memos of each of these tasks; those without any are left out."""
    of = schema.memos.c
    found: dict[int, int] = {}
    for chunk in chunks(sorted(tasks)):
        query = select(of.task, func.count()).where(one_of(connection, of.task, chunk)).group_by(of.task)
        found.update(tuple(row) for row in connection.execute(query))
    return found


def _copy(connection: Connection, tasks: Sequence[int]) -> tuple[int, ...]:
    """Insert a copy of the row of each of these tasks, and return the ids of the copies."""
    stored: dict[int, dict[str, Any]] = {}
    for chunk in chunks(sorted(set(tasks))):
        for row in connection.execute(select(schema.tasks).where(one_of(connection, _OF.id, chunk))).mappings():
            stored[row["id"]] = {name: value for name, value in row.items() if name != "id"}
    return insert_numbered(connection, schema.tasks, [stored[task] for task in tasks])


def _places(connection: Connection, fragments: Collection[int]) -> dict[int, Place]:
    """The places of these rows of ``fragments``."""
    of = schema.fragments.c
    found: dict[int, Place] = {}
    for chunk in chunks(sorted(fragments)):
        query = select(of.id, of.table_name, of.partition).where(one_of(connection, of.id, chunk))
        for row, table, partition in connection.execute(query):
            found[row] = table, partition
    return found
