"""Commit memos: they become READY for all contents that wait for them, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from sqlalchemy import Connection, delete, exists, select

from transforms.execution.operator_costs import OperatorWork
from transforms.graphs.graph import component_from_document, raw_columns
from warehouse.catalog import schema
from warehouse.catalog.bulk import update_alike
from warehouse.catalog.catalog import chunks, one_of
from warehouse.costs.measurements import MemoMeasurement, measure_memo, record_measurements
from warehouse.costs.work_estimates import TASK_SECS
from warehouse.files.memo_file import lease_of
from warehouse.lineage.recording import CommittedMemo, record_memos
from warehouse.memos.coverage import add_coverage, count_live_bytes, enter_files
from warehouse.memos.pending_aliases import pop_aliases
from warehouse.memos.task_members import delete_done
from warehouse.queue.fair_queue import correct_charges
from warehouse.queue.tasks import LeasedTask, MemoWritten, held_tasks
from warehouse.scheduling.task_states import UNREADY, MemoState
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
        numbers = held_tasks(connection, [task for task, _ in listed])
        ready = [one for one, number in zip(listed, numbers, strict=True) if number is not None]
        if ready:
            _commit(connection, ready, {number for number in numbers if number is not None}, now)
            correct_charges(connection, ((task.charge, TASK_SECS + written.secs) for task, written in ready))
            record_measurements(connection, works, _measurements(ready))
            record_memos(connection, warehouse, (_committed(*one) for one in ready), now)
        return tuple(
            number is not None or _is_committed(connection, *one) for one, number in zip(listed, numbers, strict=True)
        )

    return warehouse.catalog.run(commit, idempotent=True)


def _commit(
    connection: Connection, ready: Sequence[tuple[LeasedTask, MemoWritten]], tasks: Collection[int], now: float
) -> None:
    by_file: defaultdict[str, list[tuple[LeasedTask, MemoWritten]]] = defaultdict(list)
    for one in ready:
        by_file[one[1].file.path].append(one)
    files = enter_files(connection, {done[0][1].file for done in by_file.values()}, now)
    columns = ("file", "rows", "size_bytes", "secs", "memo_key")
    update_alike(connection, schema.memos, columns, (
        (file, written.rows, written.size_bytes, written.secs, task.memo_key)
        for path, file in files.items()
        for task, written in by_file[path]
    ), state=MemoState.READY, task=None, changed_at=now, evicted_at=None, evicted_why=None, eviction=None)  # fmt: skip
    delete_done(connection, tasks)
    _end_waits(connection, {task.fingerprint for task, _ in ready})
    aliases = pop_aliases(connection, [task.memo_key for task, _ in ready])
    add_coverage(connection, {
        (files[path], content): fingerprints
        for path, done in by_file.items()
        for content, fingerprints in _contents([task for task, _ in done], aliases).items()
    })  # fmt: skip
    count_live_bytes(connection, set(files.values()), now)


def _committed(task: LeasedTask, written: MemoWritten) -> CommittedMemo:
    # A memo that is computed again is in another file.
    key = f"{task.memo_key} {written.file.path}"
    return CommittedMemo(key, task.table, task.fingerprint, task.component, written.rows, written.size_bytes)


def _measurements(ready: Sequence[tuple[LeasedTask, MemoWritten]]) -> Iterator[MemoMeasurement]:
    """One measurement for all memos of each component."""
    by_component: defaultdict[str, list[tuple[LeasedTask, MemoWritten]]] = defaultdict(list)
    for one in ready:
        by_component[one[0].fingerprint].append(one)
    for fingerprint, done in by_component.items():
        written = [memo for _, memo in done if memo.rows]
        yield measure_memo(
            fingerprint,
            done[0][0].component,
            sum(memo.rows for memo in written),
            sum(memo.secs for memo in written),
            sum(memo.size_bytes for memo in written),
        )


def _contents(tasks: Sequence[LeasedTask], aliases: Mapping[str, Set[str]]) -> dict[str, set[str]]:
    """The components of each content that these memos of one file are for."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    own: dict[int, str] = {}
    for task in tasks:
        fragment = task.fragment
        if (content := own.get(id(fragment))) is None:
            content = content_of(fragment, _columns_of(task))
            if not fragment.overlays:  # else it depends on the component's columns
                own[id(fragment)] = content
        found[content].add(task.fingerprint)
        for content in aliases.get(task.memo_key, ()):
            found[content].add(task.fingerprint)
    return found


def _end_waits(connection: Connection, fingerprints: Collection[str]) -> None:
    """Delete the waits for components that have no other task to compute or to retry."""
    waits, memos = schema.waits, schema.memos.c
    unready = exists().where(memos.fingerprint == waits.c.fingerprint, memos.state.in_(UNREADY))
    for chunk in chunks(sorted(fingerprints)):
        connection.execute(delete(waits).where(one_of(connection, waits.c.fingerprint, chunk), ~unready))


def _is_committed(connection: Connection, task: LeasedTask, written: MemoWritten) -> bool:
    """Whether this lease already committed the memo in this file, whose path has the name of the lease."""
    if lease_of(written.file.path) != task.lease:
        return False
    memos, files = schema.memos.c, schema.memo_files.c
    query = select(memos.memo_key).join(schema.memo_files, files.id == memos.file)
    mine = (memos.memo_key == task.memo_key, memos.state == MemoState.READY, files.path == written.file.path)
    return connection.execute(query.where(*mine)).first() is not None


def _columns_of(task: LeasedTask) -> tuple[str, ...]:
    if not task.fragment.overlays:
        return ()  # without overlays, it is the fragment's own content
    return tuple(column.name for column in raw_columns(component_from_document(task.component)))
