"""Lease tasks, renew leases and release them: one queue per client.

A task's priority is the highest priority of the live models that wait for it, read when it is leased. After a lease
expires, the task can be leased again with a new fencing token; a commit with the old one is rejected.
Every function is one transaction. :mod:`warehouse.scheduling.task_states` decides the states of tasks,
:mod:`warehouse.scheduling.fair_shares` the next client, :mod:`warehouse.scheduling.batching` the size of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import as_dry_run, chunks, one_of
from warehouse.catalog.task_rows import allows, change_values, computes, is_current, leasable
from warehouse.queue.candidates import CandidateLoader
from warehouse.queue.fair_queue import charge_selection, correct_charges, select_client, waiting_priorities
from warehouse.queue.lost_leases import collect_lost
from warehouse.queue.tasks import LeasedTask, held_claims
from warehouse.scheduling.batching import BatchBudget, fill_batch_from
from warehouse.scheduling.fair_shares import Charge
from warehouse.scheduling.lease_order import in_lease_order
from warehouse.scheduling.task_states import (
    TaskEvent,
    TaskState,
    heartbeat_change,
    lease_change,
    release_change,
)
from warehouse.tables.manifests import added_columns, current_fragment_rows, fragments_by_row, with_absent
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

        def leasable_in(place: tuple[str, str], most: int) -> list[_LeasableTask]:
            table = place[0]
            if table not in waiting:
                waiting[table] = waiting_priorities(connection, table)
            found = _leasable_in(connection, place, waiting[table], now, lease_secs)
            return in_lease_order(selection.client, found)[:most]

        rows = fill_batch_from(selection.places, leasable_in, loader.candidates, budget)
        if not rows:
            return ()
        _take(connection, rows, worker, name, now, lease_secs)
        secs = loader.secs(rows)
        payers = charge_selection(connection, selection, rows, secs, warehouse.config.client_floor_share)
        fragments = _fragments_of(connection, rows)
        return tuple(
            _leased(row, selection.client, name, fragments[row.id, row.task_table], loader.documents[row.fingerprint],
                    Charge(secs[row.memo_key], payers[row.memo_key]))
            for row in rows
        )  # fmt: skip

    # Repeated if the commit is in doubt: a lease that no worker holds expires.
    return warehouse.catalog.run(take if keep else as_dry_run(take), idempotent=True)


class _LeasableTask(NamedTuple):
    """A task that can be leased: its fragment, the task, and the highest priority by client that waits for it."""

    id: int
    table_name: str
    rows: int
    size_bytes: int
    task_id: int
    memo_key: str
    state: str
    fence: int
    attempts: int
    losses: int
    task_table: str
    partition: str
    fingerprint: str
    priorities: Mapping[str, int]

    @property
    def fragment(self) -> int:
        """The row of the fragment that it reads."""
        return self.id


_FINGERPRINT = _LeasableTask._fields.index("fingerprint")


def _leasable_in(
    connection: Connection,
    place: tuple[str, str],
    waiting: Mapping[str, Mapping[str, int]],
    now: float,
    lease_secs: float,
) -> list[_LeasableTask]:
    """Leasable tasks of a partition that live models wait for; ``waiting``: priorities by component and client."""
    tasks, memos, fragments = schema.tasks, schema.memos, schema.fragments
    query = (
        select(fragments.c.id, fragments.c.table_name, fragments.c.rows, fragments.c.size_bytes,
               tasks.c.id.label("task_id"), tasks.c.memo_key, tasks.c.state, tasks.c.fence, tasks.c.attempts,
               tasks.c.losses, tasks.c.table_name.label("task_table"), tasks.c.partition, memos.c.fingerprint)
        .select_from(tasks)
        .join(memos, computes())
        .join(fragments, fragments.c.id == memos.c.fragment)
        .where(tasks.c.table_name == place[0], tasks.c.partition == place[1], leasable(now, lease_secs), is_current())
    )  # fmt: skip
    return [
        _LeasableTask._make((*row, priorities))
        for row in connection.execute(query)
        if (priorities := waiting.get(row[_FINGERPRINT])) is not None
    ]


def _take(connection: Connection, rows: Sequence[Any], worker: str, lease: str, now: float, lease_secs: float) -> None:
    of = schema.tasks.c
    for expired in (False, True):
        values = change_values(lease_change(now, lease_secs, expired=expired), now)
        ids = [row.task_id for row in rows if (row.state == TaskState.LEASED) is expired]
        for chunk in chunks(ids):
            connection.execute(
                update(schema.tasks)
                .where(one_of(connection, of.id, chunk), allows(TaskEvent.LEASE))
                .values(worker=worker, lease=lease, **values)
            )


def _fragments_of(connection: Connection, rows: Sequence[Any]) -> dict[tuple[int, str], Fragment]:
    """The fragments of tasks, by fragment row and task table; each is read once."""
    places = {(row.id, row.task_table) for row in rows}
    stored = fragments_by_row(connection, {number for number, _ in places})
    added = {table: added_columns(connection, table) for table in {table for _, table in places}}
    return {(number, table): with_absent(stored[number], added[table]) for number, table in places}


def _leased(
    row: Any, client: str, lease: str, fragment: Fragment, component: dict[str, Any], charge: Charge
) -> LeasedTask:
    return LeasedTask(row.task_id, row.memo_key, row.fence + 1, lease, row.fingerprint, component, row.task_table,
                      row.partition, fragment, client, max(row.priorities.values()), row.attempts + 1,
                      row.losses + (row.state == TaskState.LEASED), charge.secs, charge.payers)  # fmt: skip


def heartbeat(warehouse: Warehouse, tasks: Iterable[LeasedTask]) -> tuple[LeasedTask, ...]:
    """Renew the leases for ``lease_secs`` from now; returns the tasks whose leases are still valid."""
    now, held = warehouse.clock(), tuple(tasks)
    values = change_values(heartbeat_change(now, warehouse.config.lease_secs), now)

    def extend(connection: Connection) -> tuple[LeasedTask, ...]:
        owned = held_claims(connection, held)
        of = schema.tasks.c
        for chunk in chunks(sorted(task_id for task_id, *_ in owned)):
            connection.execute(update(schema.tasks).where(one_of(connection, of.id, chunk)).values(**values))
        return tuple(task for task in held if task.claim in owned)

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
        owned = held_claims(connection, held)
        of = schema.tasks.c
        values = change_values(change, now)
        for chunk in chunks(sorted(task_id for task_id, *_ in owned)):
            connection.execute(update(schema.tasks).where(one_of(connection, of.id, chunk)).values(**values))
        correct_charges(connection, ((task.charge, 0.0) for task in held if task.claim in owned))
        return len(owned)

    return warehouse.catalog.run(release, idempotent=True)
