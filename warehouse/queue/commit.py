"""Commit memos: they become READY for all contents that wait for them, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, delete, exists, select, update

from transforms.execution.operator_costs import OperatorWork
from transforms.graphs.graph import component_from_document, raw_columns
from warehouse.catalog import schema
from warehouse.catalog.bulk import update_rows
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.task_rows import change_values
from warehouse.costs.measurements import measure_memo, record_measurements
from warehouse.costs.work_estimates import TASK_SECS
from warehouse.memos.coverage import add_coverage, count_live_bytes, enter_files
from warehouse.memos.pending_aliases import pop_aliases
from warehouse.queue.fair_queue import correct_charges
from warehouse.queue.tasks import LeasedTask, MemoWritten, held_claims
from warehouse.scheduling.task_states import MEMO_OF_TASK, UNREADY, MemoState, TaskEvent, commit_change, target
from warehouse.tables.table import content_of
from warehouse.warehouse import Warehouse


def commit_memos(
    warehouse: Warehouse, done: Iterable[tuple[LeasedTask, MemoWritten]], works: Sequence[OperatorWork] = ()
) -> tuple[bool, ...]:
    """Make memos READY, in one transaction; returns whether each lease was valid.

    A memo whose lease was lost is not changed. A repeated commit of the same lease returns True again. ``works``: measured
    costs of the operators, which are recorded with those of the memos.
    """
    now, listed = warehouse.clock(), list(done)

    def commit(connection: Connection) -> tuple[bool, ...]:
        owned = held_claims(connection, [task for task, _ in listed])
        ready = [(task, written) for task, written in listed if task.claim in owned]
        if ready:
            _commit(connection, ready, now)
            correct_charges(connection, ((task.charge, TASK_SECS + written.secs) for task, written in ready))
            record_measurements(connection, works, [
                measure_memo(task.fingerprint, task.component, written.rows, written.secs, written.size_bytes)
                for task, written in ready
            ])  # fmt: skip
        return tuple(task.claim in owned or _is_committed(connection, task, written) for task, written in listed)

    return warehouse.catalog.run(commit, idempotent=True)


def _commit(connection: Connection, ready: Sequence[tuple[LeasedTask, MemoWritten]], now: float) -> None:
    change = commit_change()
    values = change_values(change, now) | {"error": None}
    tasks, failures = schema.tasks, schema.failures
    files = enter_files(connection, {written.file for _, written in ready}, now)
    for chunk in chunks(ready):
        ids = [task.task_id for task, _ in chunk]
        connection.execute(update(tasks).where(one_of(connection, tasks.c.id, ids)).values(**values))
        connection.execute(delete(failures).where(one_of(connection, failures.c.task, ids)))
    update_rows(connection, schema.memos, "memo_key", (
        {"memo_key": task.memo_key, "file": files[written.file.path], "rows": written.rows,
         "size_bytes": written.size_bytes, "secs": written.secs}
        for task, written in ready
    ), state=MEMO_OF_TASK[change.state], changed_at=now, evicted_at=None, evicted_why=None)  # fmt: skip
    _end_waits(connection, {task.fingerprint for task, _ in ready})
    places: dict[tuple[int, str], set[str]] = {}
    aliases = pop_aliases(connection, [task.memo_key for task, _ in ready])
    for task, written in ready:
        own = content_of(task.fragment, _columns_of(task))
        for content in {own, *aliases.get(task.memo_key, ())}:
            places.setdefault((files[written.file.path], content), set()).add(task.fingerprint)
    add_coverage(connection, places)
    count_live_bytes(connection, set(files.values()), now)


def _end_waits(connection: Connection, fingerprints: Collection[str]) -> None:
    """Delete the waits for components that have no other task to compute or to retry."""
    waits, memos = schema.waits, schema.memos.c
    unready = exists().where(memos.fingerprint == waits.c.fingerprint, memos.state.in_(UNREADY))
    for chunk in chunks(sorted(fingerprints)):
        connection.execute(delete(waits).where(one_of(connection, waits.c.fingerprint, chunk), ~unready))


def _is_committed(connection: Connection, task: LeasedTask, written: MemoWritten) -> bool:
    """Whether this lease already committed the memo in this file."""
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
        return ()  # without overlays, it is the fragment's own content
    return tuple(column.name for column in raw_columns(component_from_document(task.component)))
