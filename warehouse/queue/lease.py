"""The queues: one per client, with priorities, shares, leases and fencing tokens.

A task's priority is the highest priority of the live models that wait for it, read when it is leased. A lease that
runs out makes the task leasable again under a new fence; whoever held the old one is told so when it commits.
Every function is one transaction. What happens to a task is decided in :mod:`warehouse.task_states`, whose turn it is in
:mod:`warehouse.fair_shares`, and how much is taken in :mod:`warehouse.batching`.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, and_, bindparam, case, delete, func, select, update

from transforms.graph import component_from_document, raw_columns
from transforms.measured import OperatorWork
from warehouse import schema
from warehouse.awaited import take_awaited
from warehouse.batching import BatchBudget, gather
from warehouse.catalog import chunks, one_of, undone
from warehouse.coverage import count_live_bytes, cover, enter_files
from warehouse.failed_attempts import FailedAttempt, write_failed
from warehouse.failures import Failure
from warehouse.fair_shares import Charge
from warehouse.lease_order import NOT_ITS_OWN
from warehouse.lost_leases import collect_lost
from warehouse.manifests import added_columns, fragment_of, standing_rows
from warehouse.measurements import record_measurements, stored_memo
from warehouse.memo_file import NewFile
from warehouse.table import Fragment, content_of
from warehouse.taking import Weigher
from warehouse.task_rows import allows, change_values, leasable
from warehouse.task_states import (
    MEMO_OF_TASK,
    MemoState,
    TaskEvent,
    TaskState,
    beat_change,
    commit_change,
    failure_change,
    lease_change,
    release_change,
    target,
    untried_change,
)
from warehouse.turns import amend_charges, charge_turn, next_turn
from warehouse.waiting import clients_of, count_in_state, count_open, count_wanted, live_models
from warehouse.warehouse import Warehouse
from warehouse.work_estimates import TASK_SECS


@dataclass(frozen=True)
class LeasedTask:
    """A task that a worker owns until its lease runs out. ``fence`` and ``lease`` are what it must show to commit.

    Files that are written for it carry the lease's name: while a task is leased, they are not swept away. ``client`` is
    the one whose turn it was; ``attempt`` counts from 1, and ``losses`` of the earlier ones ended with a lost worker.
    ``work_secs``: what it is estimated to take of one core, and was charged to ``payers``: clients, with the share that each
    had of the workers then.
    """

    task_id: int
    memo_key: str
    fence: int
    lease: str
    fingerprint: str
    component: dict[str, Any]
    table: str
    partition: str
    fragment: Fragment
    client: str
    priority: int
    attempt: int
    losses: int = 0
    work_secs: float = 0.0
    payers: Mapping[str, float] = field(default_factory=dict)

    @property
    def charge(self) -> Charge:
        """What was charged for it."""
        return Charge(self.work_secs, self.payers)


@dataclass(frozen=True, slots=True)
class MemoWritten:
    """A memo whose bytes are in place and synced: the file, as a whole, and the column's share of it and what it cost.

    The column is named by the component's fingerprint.
    """

    file: NewFile
    rows: int
    size_bytes: int
    secs: float


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """One client's queue. A task that several clients wait for counts in each of their queues.

    ``queued`` tasks can be leased or wait out a backoff, ``leased`` ones are with a worker, ``failed`` ones are
    quarantined. ``top_priority`` is that of its most urgent queued task's models, None when nothing is queued.
    """

    client: str
    queued: int
    leased: int
    failed: int
    top_priority: int | None


def lease_tasks(
    warehouse: Warehouse,
    worker: str,
    *,
    limit: int = BatchBudget().tasks,
    batch_bytes: float = math.inf,
    lease: Callable[[], str] = lambda: uuid4().hex,
    keep: bool = True,
) -> tuple[LeasedTask, ...]:
    """Lease up to ``limit`` tasks that read and write about ``batch_bytes``, under a name that ``lease`` gives and nobody
    else ever has.

    The client whose turn it is by its share (:mod:`warehouse.fair_shares`) names the partitions, its most urgent first,
    then the oldest; from each of them *every* leasable task is taken, other clients' too, fragment by fragment and after
    its own, since they share one read of the raw data. Empty when nothing can be leased now. Without ``keep`` it is only
    looked at: nothing is leased, and nobody's share is charged.
    """
    now, name, budget = warehouse.clock(), lease(), BatchBudget(batch_bytes, limit)
    lease_secs = warehouse.config.lease_secs

    def take(connection: Connection) -> tuple[LeasedTask, ...]:
        collect_lost(connection, now, warehouse.config.limits, lease_secs)
        turn = next_turn(connection, now, lease_secs)
        if turn is None:
            return ()
        weigher = Weigher(connection, budget, warehouse.config.limits)

        def leasable_in(place: tuple[str, str], most: int) -> list[Any]:
            return _over_current_data(connection, _leasable_in(turn.client, *place, now, lease_secs), most)

        rows = gather(turn.places, leasable_in, weigher.candidates, budget)
        if not rows:
            return ()
        _take(connection, rows, worker, name, now, lease_secs)
        secs = weigher.secs(rows)
        payers = charge_turn(connection, turn, secs, warehouse.config.client_floor_share)
        fragments = _fragments_of(connection, rows)
        return tuple(
            _leased(row, turn.client, name, fragments[row.id, row.task_table], weigher.documents[row.fingerprint],
                    Charge(secs[row.memo_key], payers[row.memo_key]))
            for row in rows
        )  # fmt: skip

    # Repeated where the commit is in doubt: a lease that nobody knows of runs out by itself.
    return warehouse.catalog.run(take if keep else undone(take), idempotent=True)


def _leasable_in(client: str, table: str, partition: str, now: float, lease_secs: float) -> Any:
    """Leasable tasks as :func:`warehouse.lease_order.in_lease_order` sorts them."""
    tasks, waits, models = schema.tasks, schema.waits, schema.models
    memos, fragments = schema.memos, schema.fragments
    own = case((models.c.client == client, models.c.priority), else_=NOT_ITS_OWN)
    urgency = (
        select(tasks.c.id, func.max(models.c.priority).label("priority"), func.max(own).label("own"))
        .join(waits, waits.c.memo_key == tasks.c.memo_key)
        .join(models, and_(models.c.id == waits.c.model, models.c.live.is_(True)))
        .where(tasks.c.table_name == table, tasks.c.partition == partition, leasable(now, lease_secs))
        .group_by(tasks.c.id)
        .subquery()
    )
    return (
        select(fragments.c.id, fragments.c.table_name, fragments.c.rows, fragments.c.size_bytes,
               tasks.c.id.label("task_id"), tasks.c.memo_key, tasks.c.state, tasks.c.fence, tasks.c.attempts,
               tasks.c.losses, tasks.c.table_name.label("task_table"), tasks.c.partition, memos.c.fingerprint,
               urgency.c.priority)
        .select_from(urgency)
        .join(tasks, tasks.c.id == urgency.c.id)
        .join(memos, memos.c.memo_key == tasks.c.memo_key)
        .join(fragments, fragments.c.id == memos.c.fragment)
        .order_by(func.max(urgency.c.own).over(partition_by=fragments.c.id).desc(), fragments.c.id,
                  urgency.c.own.desc(), urgency.c.priority.desc(), tasks.c.id)
    )  # fmt: skip


def _over_current_data(connection: Connection, query: Any, most: int) -> list[Any]:
    """Up to ``most`` of the leasable tasks whose data is there.

    The others' was replaced: whoever waits for them is matched again before the next lease, which finds a copy of the
    data in another table, or lets them go.
    """
    replaced: dict[int, str] = {}
    while True:
        others = query.where(~one_of(connection, schema.tasks.c.id, replaced.keys())) if replaced else query
        rows = connection.execute(others.limit(most)).all()
        standing = standing_rows(connection, {row.id for row in rows})
        taken = [row for row in rows if row.id in standing]
        if len(taken) == len(rows):
            break
        replaced |= {row.task_id: row.memo_key for row in rows if row.id not in standing}
    waits, models = schema.waits.c, schema.models
    for chunk in chunks(list(replaced.values())):
        waiting = select(waits.model).where(one_of(connection, waits.memo_key, chunk))
        connection.execute(update(models).where(models.c.id.in_(waiting)).values(table_version=-1))
    return taken


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
    _set_memo_state(connection, [row.memo_key for row in rows], MEMO_OF_TASK[target(TaskEvent.LEASE)], now)


def _set_memo_state(connection: Connection, keys: Sequence[str], state: MemoState, now: float) -> None:
    of = schema.memos.c
    for chunk in chunks(keys):
        connection.execute(
            update(schema.memos).where(one_of(connection, of.memo_key, chunk)).values(state=state, changed_at=now)
        )


def _fragments_of(connection: Connection, rows: Sequence[Any]) -> dict[tuple[int, str], Fragment]:
    """The fragments that tasks read, by their rows and the tables that the tasks are of; each is read once."""
    of = schema.fragments.c
    stored = {
        row.id: row
        for chunk in chunks(sorted({row.id for row in rows}))
        for row in connection.execute(select(schema.fragments).where(one_of(connection, of.id, chunk)))
    }
    places = {(row.id, row.task_table) for row in rows}
    added = {table: added_columns(connection, table) for table in {table for _, table in places}}
    return {(number, table): fragment_of(stored[number], added[table]) for number, table in places}


def _leased(
    row: Any, client: str, lease: str, fragment: Fragment, component: dict[str, Any], charge: Charge
) -> LeasedTask:
    return LeasedTask(row.task_id, row.memo_key, row.fence + 1, lease, row.fingerprint, component, row.task_table,
                      row.partition, fragment, client, row.priority, row.attempts + 1,
                      row.losses + (row.state == TaskState.LEASED), charge.secs, charge.payers)  # fmt: skip


def heartbeat(warehouse: Warehouse, tasks: Iterable[LeasedTask]) -> tuple[LeasedTask, ...]:
    """Extend the leases by ``lease_secs`` from now. Returns the tasks still owned; drop the others."""
    now, held = warehouse.clock(), tuple(tasks)
    values = change_values(beat_change(now, warehouse.config.lease_secs), now)

    def extend(connection: Connection) -> tuple[LeasedTask, ...]:
        owned = _still_held(connection, held)
        of = schema.tasks.c
        for chunk in chunks(sorted(task_id for task_id, *_ in owned)):
            connection.execute(update(schema.tasks).where(one_of(connection, of.id, chunk)).values(**values))
        return tuple(task for task in held if _claim(task) in owned)

    return warehouse.catalog.run(extend, idempotent=True)


def commit_memo(warehouse: Warehouse, task: LeasedTask, written: MemoWritten) -> bool:
    """Make a memo READY. False, and nothing is changed, if the lease was lost to another worker.

    True again for what this very lease has committed already.
    """
    return commit_memos(warehouse, [(task, written)])[0]


def commit_memos(
    warehouse: Warehouse, done: Iterable[tuple[LeasedTask, MemoWritten]], works: Sequence[OperatorWork] = ()
) -> tuple[bool, ...]:
    """:func:`commit_memo` for many tasks in one transaction; one answer for each.

    ``works``: what the operators took that computed them. It is added to what is known of costs, with the memos' own.
    """
    now, listed = warehouse.clock(), list(done)

    def commit(connection: Connection) -> tuple[bool, ...]:
        owned = _still_held(connection, [task for task, _ in listed])
        ready = [(task, written) for task, written in listed if _claim(task) in owned]
        if ready:
            _commit(connection, ready, now)
            amend_charges(connection, ((task.charge, TASK_SECS + written.secs) for task, written in ready))
            record_measurements(connection, works, [
                stored_memo(task.fingerprint, task.component, written.rows, written.secs, written.size_bytes)
                for task, written in ready
            ])  # fmt: skip
        return tuple(_claim(task) in owned or _is_committed(connection, task, written) for task, written in listed)

    return warehouse.catalog.run(commit, idempotent=True)


#: What a holder shows: the task's id, its fence and the name of its lease.
_Claim = tuple[int, int, str]


def _claim(task: LeasedTask) -> _Claim:
    return task.task_id, task.fence, task.lease


def _still_held(connection: Connection, tasks: Sequence[LeasedTask]) -> set[_Claim]:
    """Which claims still stand: the compare of a compare-and-swap that holds the write lock."""
    of = schema.tasks.c
    shown = {_claim(task) for task in tasks}
    owned: set[_Claim] = set()
    for chunk in chunks(sorted({task.task_id for task in tasks})):
        query = select(of.id, of.fence, of.lease).where(one_of(connection, of.id, chunk), allows(TaskEvent.COMMIT))
        owned.update(claim for row in connection.execute(query) if (claim := tuple(row)) in shown)
    return owned


def _commit(connection: Connection, ready: Sequence[tuple[LeasedTask, MemoWritten]], now: float) -> None:
    change = commit_change()
    values = change_values(change, now) | {"error": None}
    tasks, memos, waits, failures = schema.tasks, schema.memos, schema.waits, schema.failures
    files = enter_files(connection, {written.file for _, written in ready}, now)
    for chunk in chunks(ready):
        ids, keys = [task.task_id for task, _ in chunk], [task.memo_key for task, _ in chunk]
        connection.execute(update(tasks).where(one_of(connection, tasks.c.id, ids)).values(**values))
        connection.execute(delete(failures).where(one_of(connection, failures.c.task, ids)))
        connection.execute(delete(waits).where(one_of(connection, waits.c.memo_key, keys)))
    connection.execute(
        update(memos)
        .where(memos.c.memo_key == bindparam("key"))
        .values(state=MEMO_OF_TASK[change.state], file=bindparam("in_file"), rows=bindparam("held_rows"),
                size_bytes=bindparam("held_bytes"), secs=bindparam("took_secs"), changed_at=now,
                evicted_at=None, evicted_why=None),
        [{"key": task.memo_key, "in_file": files[written.file.path], "held_rows": written.rows,
          "held_bytes": written.size_bytes, "took_secs": written.secs} for task, written in ready],
    )  # fmt: skip
    places: dict[tuple[int, str], set[str]] = {}
    awaited = take_awaited(connection, [task.memo_key for task, _ in ready])
    for task, written in ready:
        own = content_of(task.fragment, _columns_of(task))
        for content in {own, *awaited.get(task.memo_key, ())}:
            places.setdefault((files[written.file.path], content), set()).add(task.fingerprint)
    cover(connection, places)
    count_live_bytes(connection, set(files.values()), now)


def _is_committed(connection: Connection, task: LeasedTask, written: MemoWritten) -> bool:
    """Whether this very lease made the memo ready in this file: its commit was asked for twice."""
    of, memos, files = schema.tasks.c, schema.memos.c, schema.memo_files.c
    query = (
        select(of.id)
        .join(schema.memos, memos.memo_key == of.memo_key)
        .join(schema.memo_files, files.id == memos.file)
        .where(of.id == task.task_id, of.fence == task.fence, of.lease == task.lease)
        .where(of.state == target(TaskEvent.COMMIT), memos.state == MemoState.READY, files.path == written.file.path)
    )
    return connection.execute(query).first() is not None


def _columns_of(task: LeasedTask) -> tuple[str, ...]:
    if not task.fragment.overlays:
        return ()  # whatever it reads, it is the fragment's own content
    return tuple(column.name for column in raw_columns(component_from_document(task.component)))


def fail_task(
    warehouse: Warehouse,
    task: LeasedTask,
    failure: Failure,
    *,
    worker: str | None = None,
    secs: float | None = None,
    draw: Callable[[], float] = random.random,
) -> TaskState | None:
    """Report a failed attempt. The task is queued again, or FAILED (quarantined) after the last one.

    Returns its new state, or None if the lease was lost to another worker and nothing was changed. ``draw``: a random
    number in ``[0, 1)``, for the wait before the next attempt. ``secs``: what the attempt took of one core; None: nobody knows,
    unless nothing was tried.
    """
    return fail_tasks(warehouse, [(task, failure)], worker=worker, secs=secs, draw=draw)[0]


def fail_tasks(
    warehouse: Warehouse,
    failed: Iterable[tuple[LeasedTask, Failure]],
    *,
    worker: str | None = None,
    secs: float | None = None,
    draw: Callable[[], float] = random.random,
) -> tuple[TaskState | None, ...]:
    """:func:`fail_task` for many tasks in one transaction; one answer for each, as if they were reported one by one."""
    now, config, listed = warehouse.clock(), warehouse.config, list(failed)

    def attempt(task: LeasedTask, failure: Failure) -> FailedAttempt:
        change_of, base_secs = (
            (untried_change, config.untried_backoff_secs)
            if failure.is_untried
            else (failure_change, config.retry_backoff_secs)
        )
        change = change_of(task.attempt, task.losses, config.limits, now, base_secs, draw())
        return FailedAttempt(task.task_id, task.memo_key, task.attempt, worker, failure, change)

    attempts = [(task, attempt(task, failure)) for task, failure in listed]

    def fail(connection: Connection) -> tuple[TaskState | None, ...]:
        held = _still_held(connection, [task for task, _ in listed])
        reported: list[FailedAttempt | None] = []
        took: list[tuple[Charge, float]] = []
        for task, one in attempts:
            is_held = _claim(task) in held
            reported.append(one if is_held else None)
            held.discard(_claim(task))  # whoever reports the same attempt again does not hold it any more
            took_secs = 0.0 if one.failure.is_untried else secs
            if is_held and took_secs is not None:
                took.append((task.charge, took_secs))
        write_failed(connection, [one for one in reported if one is not None], now)
        amend_charges(connection, took)
        return tuple(None if one is None else one.change.state for one in reported)

    return warehouse.catalog.run(fail, idempotent=True)


def over_current_data(warehouse: Warehouse, tasks: Sequence[LeasedTask]) -> bool:
    """Whether the raw data of these tasks, all over one fragment, is still that of some table."""
    memos, fragments = schema.memos, schema.fragments
    query = select(memos.c.fragment).join(fragments, fragments.c.id == memos.c.fragment).distinct()
    rows: set[int] = set()
    with warehouse.catalog.read() as connection:
        for chunk in chunks([task.memo_key for task in tasks]):
            mine = query.where(one_of(connection, memos.c.memo_key, chunk), fragments.c.path == tasks[0].fragment.path)
            rows.update(connection.execute(mine).scalars())
        return bool(standing_rows(connection, rows))


def release_tasks(warehouse: Warehouse, tasks: Iterable[LeasedTask]) -> int:
    """Give tasks back untried: the attempt does not count, nor is it charged. Returns how many were still owned."""
    now, held = warehouse.clock(), tuple(tasks)
    change = release_change()

    def release(connection: Connection) -> int:
        owned = _still_held(connection, held)
        of = schema.tasks.c
        values = change_values(change, now)
        for chunk in chunks(sorted(task_id for task_id, *_ in owned)):
            connection.execute(update(schema.tasks).where(one_of(connection, of.id, chunk)).values(**values))
        keys = [task.memo_key for task in held if _claim(task) in owned]
        _set_memo_state(connection, keys, MEMO_OF_TASK[change.state], now)
        amend_charges(connection, ((task.charge, 0.0) for task in held if _claim(task) in owned))
        return len(owned)

    return warehouse.catalog.run(release, idempotent=True)


def queued_tasks(warehouse: Warehouse) -> int:
    """How many tasks are queued for live models, those that wait out a backoff too."""
    with warehouse.catalog.read() as connection:
        return count_wanted(connection, queued_only=True)


def unfinished_tasks(warehouse: Warehouse, within_secs: float = math.inf) -> int:
    """How many tasks are with a worker, or queued for live models and due within so many seconds."""
    with warehouse.catalog.read() as connection:
        return count_wanted(connection, queued_only=False, due_by=warehouse.clock() + within_secs)


def queue_depths(warehouse: Warehouse) -> tuple[QueueDepth, ...]:
    """Every client's queue, by name; clients without one are listed with zeros."""
    with warehouse.catalog.read() as connection:
        return read_depths(connection)


def read_depths(connection: Connection) -> tuple[QueueDepth, ...]:
    """:func:`queue_depths` inside a transaction."""
    models, states = live_models(connection), (TaskState.LEASED, TaskState.FAILED)
    counted = {state: count_in_state(connection, state) for state in states}
    leased = counted[TaskState.LEASED]
    counted[TaskState.QUEUED] = {
        waiters: count - leased.get(waiters, 0) for waiters, count in count_open(connection).items()
    }
    depths: Counter[tuple[str, TaskState]] = Counter()
    for state, by_waiters in counted.items():
        for waiters, count in by_waiters.items():
            depths.update({(client, state): count for client in clients_of(waiters, models)})
    queued = frozenset().union(*(waiters for waiters, count in counted[TaskState.QUEUED].items() if count))
    top: dict[str, int] = {}
    for model in map(models.__getitem__, queued):
        top[model.client] = max(model.priority, top.get(model.client, model.priority))
    names = connection.execute(select(schema.clients.c.name).order_by(schema.clients.c.name)).scalars()
    return tuple(
        QueueDepth(name, depths[name, TaskState.QUEUED], depths[name, TaskState.LEASED],
                   depths[name, TaskState.FAILED], top.get(name))
        for name in names
    )  # fmt: skip
