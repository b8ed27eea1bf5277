"""The queues: one per client, with priorities, leases and fencing tokens.

A task's priority is the highest priority of the live models that wait for it, read when it is leased. A lease that
runs out makes the task leasable again under a new fence; whoever held the old one is told so when it commits.
Every function is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select, update

from transforms.graph import component_from_document, raw_columns
from transforms.measured import OperatorWork
from warehouse import schema
from warehouse.awaited import take_awaited
from warehouse.catalog import chunks, one_of, storable
from warehouse.coverage import count_live_bytes, cover, enter_files
from warehouse.manifests import AddedColumns, added_columns, fragment_of, standing_rows
from warehouse.measurements import record_measurements, stored_memo
from warehouse.memo_file import NewFile
from warehouse.memos import requeue_tasks
from warehouse.table import Fragment, content_of
from warehouse.task_states import (
    MEMO_OF_TASK,
    MemoState,
    TaskEvent,
    TaskState,
    backoff_secs,
    on_failure,
    sources,
    target,
)
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class LeasedTask:
    """A task that a worker owns until its lease runs out. ``fence`` and ``lease`` are what it must show to commit.

    Files that are written for it carry the lease's name: while a task is leased, they are not swept away. ``client`` is
    the one whose turn it was; ``attempt`` counts from 1.
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
    warehouse: Warehouse, worker: str, *, limit: int, lease: Callable[[], str] = lambda: uuid4().hex
) -> tuple[LeasedTask, ...]:
    """Lease up to ``limit`` tasks for ``worker``, under a name that ``lease`` gives and nobody else ever has.

    The client that was served longest ago has its turn; its most urgent partitions come first (then the oldest);
    from each of them *every* leasable task is taken, other clients' too, most urgent first, since they share one read
    of the raw data. Empty when nothing can be leased now.
    """
    now, name = warehouse.clock(), lease()

    def take(connection: Connection) -> tuple[LeasedTask, ...]:
        _quarantine_lost(connection, now, warehouse.config.max_attempts)
        client, partitions = _next_turn(connection, now)
        rows: list[Any] = []
        for table, partition in partitions:
            if len(rows) >= limit:
                break
            rows += _over_current_data(connection, table, partition, now, limit - len(rows))
        if not rows:
            return ()
        until = now + warehouse.config.lease_secs
        _take(connection, rows, worker, name, until, now)
        _count_turn(connection, client, len(rows))
        added = {table: added_columns(connection, table) for table in {row.table_name for row in rows}}
        return tuple(_leased(row, client, name, added[row.table_name]) for row in rows)

    # Repeated where the commit is in doubt: a lease that nobody knows of runs out by itself.
    return warehouse.catalog.run(take, idempotent=True)


def _leasable(now: float) -> Any:
    of = schema.tasks.c
    return or_(
        and_(of.state == TaskState.QUEUED, of.not_before <= now),
        and_(of.state == TaskState.LEASED, of.lease_until < now),
    )


def _next_turn(connection: Connection, now: float) -> tuple[str, list[tuple[str, str]]]:
    """The client whose turn it is, and the partitions it waits for, most urgent and then oldest first."""
    tasks, waits, models, clients = schema.tasks, schema.waits, schema.models, schema.clients
    query = (
        select(models.c.client, clients.c.served, tasks.c.table_name, tasks.c.partition, func.max(models.c.priority))
        .select_from(tasks)
        .join(waits, waits.c.memo_key == tasks.c.memo_key)
        .join(models, and_(models.c.id == waits.c.model, models.c.live.is_(True)))
        .join(clients, clients.c.name == models.c.client)
        .where(_leasable(now))
        .group_by(models.c.client, clients.c.served, tasks.c.table_name, tasks.c.partition)
    )
    rows = connection.execute(query).all()
    if not rows:
        return "", []
    _, client = min((served, client) for client, served, *_ in rows)
    urgent = sorted((-priority, table, partition) for name, _, table, partition, priority in rows if name == client)
    return client, [(table, partition) for _, table, partition in urgent]


def _leasable_in(table: str, partition: str, now: float) -> Any:
    tasks, waits, models = schema.tasks, schema.waits, schema.models
    memos, fragments, components = schema.memos, schema.fragments, schema.components
    urgency = (
        select(tasks.c.id, func.max(models.c.priority).label("priority"))
        .join(waits, waits.c.memo_key == tasks.c.memo_key)
        .join(models, and_(models.c.id == waits.c.model, models.c.live.is_(True)))
        .where(tasks.c.table_name == table, tasks.c.partition == partition, _leasable(now))
        .group_by(tasks.c.id)
        .subquery()
    )
    return (
        select(fragments, tasks.c.id.label("task_id"), tasks.c.memo_key, tasks.c.fence, tasks.c.attempts,
               tasks.c.table_name.label("task_table"), tasks.c.partition, memos.c.fingerprint,
               components.c.document, urgency.c.priority)
        .select_from(urgency)
        .join(tasks, tasks.c.id == urgency.c.id)
        .join(memos, memos.c.memo_key == tasks.c.memo_key)
        .join(fragments, fragments.c.id == memos.c.fragment)
        .join(components, components.c.fingerprint == memos.c.fingerprint)
        .order_by(urgency.c.priority.desc(), fragments.c.id, tasks.c.id)
    )  # fmt: skip


def _over_current_data(connection: Connection, table: str, partition: str, now: float, most: int) -> list[Any]:
    """Up to ``most`` leasable tasks of a partition whose data is there.

    The others' was replaced: whoever waits for them is matched again before the next lease, which finds a copy of the
    data in another table, or lets them go.
    """
    lost: dict[int, str] = {}
    query = _leasable_in(table, partition, now)
    while True:
        others = query.where(~one_of(connection, schema.tasks.c.id, lost.keys())) if lost else query
        rows = connection.execute(others.limit(most)).all()
        standing = standing_rows(connection, {row.id for row in rows})
        taken = [row for row in rows if row.id in standing]
        if len(taken) == len(rows):
            break
        lost |= {row.task_id: row.memo_key for row in rows if row.id not in standing}
    waits, models = schema.waits.c, schema.models
    for chunk in chunks(list(lost.values())):
        waiting = select(waits.model).where(one_of(connection, waits.memo_key, chunk))
        connection.execute(update(models).where(models.c.id.in_(waiting)).values(table_version=-1))
    return taken


def _take(connection: Connection, rows: Sequence[Any], worker: str, lease: str, until: float, now: float) -> None:
    of = schema.tasks.c
    for chunk in chunks([row.task_id for row in rows]):
        connection.execute(
            update(schema.tasks)
            .where(of.id.in_(chunk), of.state.in_(sources(TaskEvent.LEASE)))
            .values(state=target(TaskEvent.LEASE), worker=worker, lease=lease, lease_until=until, fence=of.fence + 1,
                    attempts=of.attempts + 1, changed_at=now)
        )  # fmt: skip
    _set_memo_state(connection, [row.memo_key for row in rows], MEMO_OF_TASK[target(TaskEvent.LEASE)], now)


def _set_memo_state(connection: Connection, keys: Sequence[str], state: MemoState, now: float) -> None:
    of = schema.memos.c
    for chunk in chunks(keys):
        connection.execute(update(schema.memos).where(of.memo_key.in_(chunk)).values(state=state, changed_at=now))


def _count_turn(connection: Connection, client: str, tasks: int) -> None:
    of = schema.clients.c
    latest = connection.execute(select(func.max(of.served))).scalar() or 0
    values = {"served": latest + 1, "leased_tasks": of.leased_tasks + tasks}
    connection.execute(update(schema.clients).where(of.name == client).values(**values))


def _leased(row: Any, client: str, lease: str, added: AddedColumns) -> LeasedTask:
    return LeasedTask(row.task_id, row.memo_key, row.fence + 1, lease, row.fingerprint, row.document, row.task_table,
                      row.partition, fragment_of(row, added), client, row.priority, row.attempts + 1)  # fmt: skip


def _quarantine_lost(connection: Connection, now: float, max_attempts: int) -> None:
    """Tasks whose last attempt ended with a lost worker are not tried for ever."""
    of = schema.tasks.c
    query = select(of.id, of.memo_key, of.attempts).where(
        of.state == TaskState.LEASED, of.lease_until < now, of.attempts >= max_attempts
    )
    for row in connection.execute(query).all():
        error = f"{row.attempts} workers were lost while they computed it"
        _quarantine(connection, row.id, row.memo_key, error, now)


def _quarantine(connection: Connection, task_id: int, key: str, error: str, now: float) -> None:
    state = target(TaskEvent.QUARANTINE)
    connection.execute(
        update(schema.tasks).where(schema.tasks.c.id == task_id).values(state=state, error=error, changed_at=now)
    )
    values = {
        "state": MEMO_OF_TASK[state],
        "cause_code": "failed",
        "cause": error.splitlines()[0] if error else "failed",
    }
    connection.execute(update(schema.memos).where(schema.memos.c.memo_key == key).values(changed_at=now, **values))


def _held(task: LeasedTask, event: TaskEvent) -> Any:
    """The compare of compare-and-swap: the task is in a state that allows ``event``, under the holder's fence."""
    of = schema.tasks.c
    return and_(of.id == task.task_id, of.fence == task.fence, of.lease == task.lease, of.state.in_(sources(event)))


def heartbeat(warehouse: Warehouse, tasks: Iterable[LeasedTask]) -> tuple[LeasedTask, ...]:
    """Extend the leases by ``lease_secs`` from now. Returns the tasks still owned; drop the others."""
    until = warehouse.clock() + warehouse.config.lease_secs
    held = tuple(tasks)

    def extend(connection: Connection) -> tuple[LeasedTask, ...]:
        owned = _still_held(connection, held)
        of = schema.tasks.c
        for chunk in chunks(sorted(task_id for task_id, *_ in owned)):
            connection.execute(update(schema.tasks).where(of.id.in_(chunk)).values(lease_until=until))
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
        query = select(of.id, of.fence, of.lease).where(of.id.in_(chunk), of.state.in_(sources(TaskEvent.COMMIT)))
        owned.update(claim for row in connection.execute(query) if (claim := tuple(row)) in shown)
    return owned


def _commit(connection: Connection, ready: Sequence[tuple[LeasedTask, MemoWritten]], now: float) -> None:
    state = target(TaskEvent.COMMIT)
    tasks, memos, waits = schema.tasks, schema.memos, schema.waits
    files = enter_files(connection, {written.file for _, written in ready}, now)
    for chunk in chunks(ready):
        ids, keys = [task.task_id for task, _ in chunk], [task.memo_key for task, _ in chunk]
        connection.execute(update(tasks).where(tasks.c.id.in_(ids)).values(state=state, error=None, changed_at=now))
        connection.execute(delete(waits).where(waits.c.memo_key.in_(keys)))
    connection.execute(
        update(memos)
        .where(memos.c.memo_key == bindparam("key"))
        .values(state=MEMO_OF_TASK[state], file=bindparam("in_file"), rows=bindparam("held_rows"),
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


def fail_task(warehouse: Warehouse, task: LeasedTask, error: str) -> TaskState | None:
    """Report a failed attempt. The task is queued again, or FAILED (quarantined, with the error) after the last one.

    Returns its new state, or None if the lease was lost to another worker and nothing was changed.
    """
    now, config = warehouse.clock(), warehouse.config
    event, error = on_failure(task.attempt, config.max_attempts), storable(error)

    def fail(connection: Connection) -> TaskState | None:
        swapped = connection.execute(
            update(schema.tasks)
            .where(_held(task, event))
            .values(state=target(event), error=error, changed_at=now, lease_until=None,
                    not_before=now + backoff_secs(task.attempt, config.retry_backoff_secs))
        )  # fmt: skip
        if swapped.rowcount == 0:
            return None
        if event is TaskEvent.QUARANTINE:
            _quarantine(connection, task.task_id, task.memo_key, error, now)
        else:
            _set_memo_state(connection, [task.memo_key], MEMO_OF_TASK[target(event)], now)
        return target(event)

    return warehouse.catalog.run(fail, idempotent=True)


def release_tasks(warehouse: Warehouse, tasks: Iterable[LeasedTask]) -> int:
    """Give tasks back untried: the attempt does not count. Returns how many were still owned."""
    now, held = warehouse.clock(), tuple(tasks)
    state = target(TaskEvent.RELEASE)

    def release(connection: Connection) -> int:
        owned = _still_held(connection, held)
        of = schema.tasks.c
        values = {"state": state, "attempts": of.attempts - 1, "lease_until": None, "changed_at": now}
        for chunk in chunks(sorted(task_id for task_id, *_ in owned)):
            connection.execute(update(schema.tasks).where(of.id.in_(chunk)).values(**values))
        keys = [task.memo_key for task in held if _claim(task) in owned]
        _set_memo_state(connection, keys, MEMO_OF_TASK[state], now)
        return len(owned)

    return warehouse.catalog.run(release, idempotent=True)


def retry_failed(warehouse: Warehouse, fingerprint: str | None = None) -> int:
    """Queue quarantined tasks again with all their attempts, of one component or of all; returns how many."""
    memos, now = schema.memos, warehouse.clock()

    def retry(connection: Connection) -> int:
        query = select(memos.c.memo_key).where(memos.c.state == MemoState.FAILED)
        if fingerprint is not None:
            query = query.where(memos.c.fingerprint == fingerprint)
        keys = connection.execute(query).scalars().all()
        requeue_tasks(connection, keys, now)
        _set_memo_state(connection, keys, MemoState.PENDING, now)
        return len(keys)

    return warehouse.catalog.run(retry, idempotent=True)


def queue_depths(warehouse: Warehouse) -> tuple[QueueDepth, ...]:
    """Every client's queue, by name; clients without one are listed with zeros."""
    with warehouse.catalog.read() as connection:
        return read_depths(connection)


def read_depths(connection: Connection) -> tuple[QueueDepth, ...]:
    """:func:`queue_depths` inside a transaction."""
    tasks, waits, models = schema.tasks, schema.waits, schema.models
    query = (
        select(models.c.client, tasks.c.state, func.count(tasks.c.id.distinct()), func.max(models.c.priority))
        .join(waits, waits.c.model == models.c.id)
        .join(tasks, tasks.c.memo_key == waits.c.memo_key)
        .where(models.c.live.is_(True))
        .group_by(models.c.client, tasks.c.state)
    )
    counted = {(client, TaskState(state)): (count, top) for client, state, count, top in connection.execute(query)}
    names = connection.execute(select(schema.clients.c.name).order_by(schema.clients.c.name)).scalars()
    nothing = (0, None)
    return tuple(
        QueueDepth(
            name,
            counted.get((name, TaskState.QUEUED), nothing)[0],
            counted.get((name, TaskState.LEASED), nothing)[0],
            counted.get((name, TaskState.FAILED), nothing)[0],
            counted.get((name, TaskState.QUEUED), nothing)[1],
        )
        for name in names
    )
