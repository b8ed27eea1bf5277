"""Lease tasks, renew leases and release them: one queue per client.

A task's priority is the highest priority of the live models that wait for it, read when it is leased. After a lease
expires, the task can be leased again with a new fencing token; a commit with the old one is rejected.
Every function is one transaction. :mod:`warehouse.scheduling.task_states` decides the states of tasks,
:mod:`warehouse.scheduling.fair_shares` the next client, :mod:`warehouse.scheduling.batching` the size of a batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection, Select, bindparam, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import as_dry_run, chunks, one_of
from warehouse.catalog.task_rows import allows, change_values, is_current, leasable
from warehouse.memos.task_members import split
from warehouse.queue.candidates import CandidateLoader
from warehouse.queue.fair_queue import charge_selection, correct_charges, select_client, waiting_priorities
from warehouse.queue.lost_leases import collect_lost
from warehouse.queue.tasks import LeasedTask, held_tasks
from warehouse.scheduling.batching import BatchBudget, fill_batch_from
from warehouse.scheduling.lease_order import in_lease_order
from warehouse.scheduling.task_states import (
    TaskEvent,
    TaskState,
    heartbeat_change,
    lease_change,
    release_change,
)
from warehouse.tables.manifests import current_fragment_rows, fragments_by_row
from warehouse.tables.table import Fragment
from warehouse.warehouse import Warehouse


def lease_tasks(
    warehouse: Warehouse,
    worker: str,
    *,
    limit: int = BatchBudget().tasks,
    batch_bytes: float = math.inf,
    lease: Callable[[], str] = lambda: uuid4().hex,
    keep: bool = True,
) -> tuple[LeasedTask, ...]:
    """Lease a batch of tasks; empty if no task can be leased now.

    The partitions are those that the next client (:mod:`warehouse.scheduling.fair_shares`) waits for, most urgent first, then
    oldest. *Every* leasable task of a partition is added, fragment by fragment: other clients' tasks after its own, since they
    share one read of the raw data.

    Args:
        warehouse: The warehouse.
        worker: The worker that holds the lease.
        limit: The largest number of tasks.
        batch_bytes: The bytes that they read and write, about.
        lease: Returns a unique name for the lease.
        keep: False: return the batch, but lease and charge nothing.
    """
    now, name, budget = warehouse.clock(), lease(), BatchBudget(batch_bytes, limit)
    lease_secs = warehouse.config.lease_secs

    def take(connection: Connection) -> tuple[LeasedTask, ...]:
        collect_lost(connection, now, warehouse.config.limits, lease_secs)
        selection = select_client(connection, now, lease_secs)
        if selection is None:
            return ()
        loader = CandidateLoader(connection, budget, warehouse.config.limits)

        waiting: dict[str, dict[str, dict[str, int]]] = {}
        sizes, in_place = Counter[int](), _tasks_in_place(now, lease_secs)

        def leasable_in(place: tuple[str, str], most: int) -> list[_LeasableMemo]:
            table = place[0]
            if table not in waiting:
                waiting[table] = waiting_priorities(connection, table)
            found = _leasable_in(connection, in_place, place, waiting[table], sizes)
            return in_lease_order(selection.client, found)[:most]

        rows = fill_batch_from(selection.places, leasable_in, loader.candidates, budget)
        if not rows:
            return ()
        tasks = _take(connection, rows, sizes, worker, name, now, lease_secs)
        secs = loader.secs(rows)
        payers = charge_selection(connection, selection, rows, secs, warehouse.config.client_floor_share)
        fragments = _fragments_of(connection, rows)
        return tuple(
            _leased(row, tasks.get(row.memo_key, row.task_id), selection.client, name, fragments[row.id], loader.documents[row.fingerprint],
                    secs[row.memo_key], payers[row.memo_key])
            for row in rows
        )  # fmt: skip

    # Repeated if the commit is in doubt: a lease that no worker holds expires.
    return warehouse.catalog.run(take if keep else as_dry_run(take), idempotent=True)


class _LeasableMemo(NamedTuple):
    """A memo that can be leased: its fragment, its task, and the highest priority by client that waits for it."""

    id: int
    table_name: str
    rows: int
    size_bytes: int
    task_id: int
    state: str
    fence: int
    attempts: int
    losses: int
    partition: str
    memo_key: str
    fingerprint: str
    priorities: Mapping[str, int]

    @property
    def fragment(self) -> int:
        """The row of the fragment that it reads."""
        return self.id


def _tasks_in_place(now: float, lease_secs: float) -> Select[Any]:
    """The leasable tasks of a partition, with their fragments."""
    tasks, fragments = schema.tasks.c, schema.fragments.c
    here = (tasks.table_name == bindparam("table"), tasks.partition == bindparam("partition"))
    return (
        select(fragments.id, fragments.table_name, fragments.rows, fragments.size_bytes, tasks.id, tasks.state, tasks.fence,
               tasks.attempts, tasks.losses, tasks.partition)
        .join(schema.fragments, fragments.id == tasks.fragment)
        .where(*here, leasable(now, lease_secs), is_current())
    )  # fmt: skip


def _leasable_in(
    connection: Connection,
    in_place: Select[Any],
    place: tuple[str, str],
    waiting: Mapping[str, Mapping[str, int]],
    sizes: Counter[int],
) -> list[_LeasableMemo]:
    """Leasable memos of a partition that live models wait for.

    ``waiting``: priorities by component and client. The number of memos of each task, with those that no model waits for,
    is added to ``sizes``.
    """
    memos = schema.memos.c
    of_task = {
        row[4]: tuple(row)
        for row in connection.execute(in_place, dict(zip(("table", "partition"), place, strict=True)))
    }
    found = []
    members = select(memos.task, memos.memo_key, memos.fingerprint)
    for chunk in chunks(sorted(of_task)):
        rows = connection.execute(members.where(one_of(connection, memos.task, chunk))).all()
        sizes.update(row[0] for row in rows)
        found += [
            _LeasableMemo._make((*of_task[task], key, fingerprint, priorities))
            for task, key, fingerprint in rows
            if (priorities := waiting.get(fingerprint)) is not None
        ]
    return found


def _take(
    connection: Connection,
    rows: Sequence[_LeasableMemo],
    sizes: Mapping[int, int],
    worker: str,
    lease: str,
    now: float,
    lease_secs: float,
) -> dict[str, int]:
    """Lease the tasks of these memos, of which ``sizes`` are the numbers of memos.

    A task of which only a part is leased is split. Returns the tasks of such parts, by memo key.
    """
    taken = Counter(row.task_id for row in rows)
    parts = split(connection, [[row.memo_key for row in rows if taken[row.task_id] < sizes[row.task_id]]])
    of = schema.tasks.c
    for expired in (False, True):
        values = change_values(lease_change(now, lease_secs, expired=expired), now)
        mine = (row for row in rows if (row.state == TaskState.LEASED) is expired)
        for chunk in chunks(sorted({parts.get(row.memo_key, row.task_id) for row in mine})):
            connection.execute(
                update(schema.tasks)
                .where(one_of(connection, of.id, chunk), allows(TaskEvent.LEASE))
                .values(worker=worker, lease=lease, **values)
            )
    return parts


def _fragments_of(connection: Connection, rows: Sequence[_LeasableMemo]) -> dict[int, Fragment]:
    """The fragments of memos, by row; each is read once."""
    return fragments_by_row(connection, {row.id for row in rows})


def _leased(
    row: _LeasableMemo,
    task: int,
    client: str,
    lease: str,
    fragment: Fragment,
    component: dict[str, Any],
    secs: float,
    payers: Mapping[str, float],
) -> LeasedTask:
    return LeasedTask(task, row.memo_key, row.fence + 1, lease, row.fingerprint, component, row.table_name, row.partition,
                      fragment, client, max(row.priorities.values()), row.attempts + 1,
                      row.losses + (row.state == TaskState.LEASED), secs, payers)  # fmt: skip


def heartbeat(warehouse: Warehouse, tasks: Iterable[LeasedTask]) -> tuple[LeasedTask, ...]:
    """Renew the leases for ``lease_secs`` from now; returns the tasks whose leases are still valid.

    A lease is renewed for all memos of a task, also for those that are not given.
    """
    now, held = warehouse.clock(), tuple(tasks)
    values = change_values(heartbeat_change(now, warehouse.config.lease_secs), now)

    def extend(connection: Connection) -> tuple[LeasedTask, ...]:
        numbers = held_tasks(connection, held)
        of = schema.tasks.c
        for chunk in chunks(sorted({number for number in numbers if number is not None})):
            connection.execute(update(schema.tasks).where(one_of(connection, of.id, chunk)).values(**values))
        return tuple(task for task, number in zip(held, numbers, strict=True) if number is not None)

    return warehouse.catalog.run(extend, idempotent=True)


def reads_current_data(warehouse: Warehouse, tasks: Sequence[LeasedTask]) -> bool:
    """Whether the fragment of these tasks, the same for all, is current in some table."""
    memos, fragments = schema.memos, schema.fragments
    query = select(memos.c.fragment).join(fragments, fragments.c.id == memos.c.fragment).distinct()
    rows: set[int] = set()
    with warehouse.catalog.read() as connection:
        for chunk in chunks([task.memo_key for task in tasks]):
            mine = query.where(one_of(connection, memos.c.memo_key, chunk), fragments.c.path == tasks[0].fragment.path)
            rows.update(connection.execute(mine).scalars())
        return bool(current_fragment_rows(connection, rows))


def release_tasks(warehouse: Warehouse, tasks: Iterable[LeasedTask]) -> int:
    """Release leases; the attempts neither count nor are charged. Returns how many leases were still valid."""
    now, held = warehouse.clock(), tuple(tasks)
    change = release_change()

    def release(connection: Connection) -> int:
        numbers = held_tasks(connection, held)
        owned = [task for task, number in zip(held, numbers, strict=True) if number is not None]
        of = schema.tasks.c
        values = change_values(change, now)
        released = split(connection, [list({task.memo_key for task in owned})])
        for chunk in chunks(sorted(set(released.values()))):
            connection.execute(update(schema.tasks).where(one_of(connection, of.id, chunk)).values(**values))
        correct_charges(connection, ((task.charge, 0.0) for task in owned))
        return len(owned)

    return warehouse.catalog.run(release, idempotent=True)
