"""Memos in the catalog: looking them up, and marking one whose bytes are bad."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from warehouse import schema
from warehouse.catalog import chunks, one_of
from warehouse.coverage import uncover
from warehouse.errors import MemoDamaged
from warehouse.manifests import added_columns, fragment_of
from warehouse.matching import MemoRecord
from warehouse.table import memo_key
from warehouse.task_states import MemoState, TaskEvent, sources, target
from warehouse.warehouse import Warehouse


def find_memos(connection: Connection, keys: Iterable[str]) -> dict[str, MemoRecord]:
    """The records of those keys that the catalog knows."""
    found: dict[str, MemoRecord] = {}
    for chunk in chunks(sorted(set(keys))):
        for row in connection.execute(select(schema.memos).where(one_of(connection, schema.memos.c.memo_key, chunk))):
            found[row.memo_key] = _record(row)
    return found


def _record(row: Any) -> MemoRecord:
    return MemoRecord(
        memo_key=row.memo_key,
        fingerprint=row.fingerprint,
        fragment=row.fragment,
        state=MemoState(row.state),
        file=row.file,
        queued_by=row.queued_by,
        cause_code=row.cause_code,
        cause=row.cause,
        changed_at=row.changed_at,
        evicted_at=row.evicted_at,
        evicted_why=row.evicted_why or "",
    )


def mark_damaged(warehouse: Warehouse, key: str, file: str, why: str) -> bool:
    """Record that the bytes of a ready memo, in ``file`` as a solution named it, are missing or wrong.

    If a live model reads it, it is queued at once; otherwise it is evicted. Returns False, and changes nothing, if
    the memo is not ready (another reader was first) or stands elsewhere by now: an older solution knows older files.
    """
    of, files, now = schema.memos.c, schema.memo_files.c, warehouse.clock()

    def mark(connection: Connection) -> bool:
        found = connection.execute(
            select(of.fingerprint, of.file)
            .join(schema.memo_files, files.id == of.file)
            .where(of.memo_key == key, of.state == MemoState.READY, files.path == file)
        ).first()
        if found is None:
            return False
        evict_memos(connection, {key: found.fingerprint}, {found.file: {found.fingerprint}}, f"damaged: {why}", now)
        requeue_for_readers(connection, key, f"its bytes were damaged: {why}", now)
        return True

    return warehouse.catalog.run(mark, idempotent=True)


def evict_memos(
    connection: Connection, memos: Mapping[str, str], files: Mapping[int, Collection[str]], why: str, now: float
) -> tuple[int, ...]:
    """Make ready memos (key to fingerprint), which lie in these files, tombstones; returns the files that are condemned."""
    of = schema.memos.c
    values = {"state": MemoState.EVICTED, "evicted_at": now, "evicted_why": why, "changed_at": now, "file": None}
    for chunk in chunks(sorted(memos)):
        connection.execute(update(schema.memos).where(one_of(connection, of.memo_key, chunk)).values(**values))
    return uncover(connection, files, now)


def damage_recorder(warehouse: Warehouse) -> Callable[[str, str, MemoDamaged], None]:
    """What to pass as ``on_damage`` to :func:`warehouse.reader.read_fragment` where the catalog is at hand."""

    def record(key: str, file: str, error: MemoDamaged) -> None:
        mark_damaged(warehouse, key, file, error.what)

    return record


def requeue_for_readers(connection: Connection, key: str, cause: str, now: float) -> None:
    """Queue an evicted memo again for the live models that read it, if there are any."""
    memos, models, inputs = schema.memos, schema.models, schema.model_inputs
    readers = connection.execute(
        select(models.c.id)
        .join(inputs, inputs.c.model == models.c.id)
        .join(memos, memos.c.fingerprint == inputs.c.fingerprint)
        .where(memos.c.memo_key == key, models.c.live.is_(True))
        .distinct()
    ).scalars()
    waits = [{"memo_key": key, "model": model} for model in readers]
    if waits:
        requeue_tasks(connection, [key], now)
        values = {"state": MemoState.PENDING, "cause_code": "evicted", "cause": cause}
        connection.execute(update(memos).where(memos.c.memo_key == key).values(**values))
        connection.execute(insert(schema.waits), waits)


def requeue_tasks(connection: Connection, keys: Iterable[str], now: float) -> None:
    """Put finished tasks of these memos back into the queue with all their attempts, each over data that is there."""
    of = schema.tasks.c
    for chunk in chunks(sorted(set(keys))):
        _move_to_current_copies(connection, chunk)
        connection.execute(
            update(schema.tasks)
            .where(one_of(connection, of.memo_key, chunk), of.state.in_(sources(TaskEvent.REQUEUE)))
            .values(state=target(TaskEvent.REQUEUE), attempts=0, not_before=0.0, error=None, changed_at=now)
        )


def _move_to_current_copies(connection: Connection, keys: Iterable[str]) -> None:
    """Point memos whose fragment is no part of a table any more at a current fragment of equal content, if there is one.

    A file that was renamed, or registered in a second table, keeps its fragment's identity under another row.
    """
    memos, fragments = schema.memos, schema.fragments
    query = select(memos.c.memo_key, memos.c.fingerprint, memos.c.fragment, fragments.c.fragment_id)
    query = query.join(fragments, fragments.c.id == memos.c.fragment).where(
        one_of(connection, memos.c.memo_key, list(keys))
    )
    wanted = connection.execute(query).all()
    members, manifests = schema.manifest_fragments, schema.manifests
    copies = (
        select(fragments, manifests.c.partition)
        .join(members, members.c.fragment == fragments.c.id)
        .join(manifests, manifests.c.id == members.c.manifest)
        .where(manifests.c.current.is_(True), fragments.c.fragment_id.in_({row.fragment_id for row in wanted}))
        .order_by(fragments.c.id)
    )
    current = connection.execute(copies).all()
    there = {row.id for row in current}
    lost = [row for row in wanted if row.fragment not in there]
    columns = _columns_read(connection, {row.fingerprint for row in lost})
    added = {table: added_columns(connection, table) for table in {row.table_name for row in current}}
    for memo in lost:
        read = columns[memo.fingerprint]
        for copy in (row for row in current if row.fragment_id == memo.fragment_id):
            digests = fragment_of(copy, added[copy.table_name]).digests
            # One file with and without overlays has one fragment_id: what this memo reads must be the same in both.
            if digests.keys() >= read and memo_key(memo.fingerprint, digests, read) == memo.memo_key:
                _move(connection, memo.memo_key, copy)
                break


def _move(connection: Connection, key: str, copy: Any) -> None:
    memos, tasks = schema.memos, schema.tasks
    connection.execute(update(memos).where(memos.c.memo_key == key).values(fragment=copy.id))
    place = {"table_name": copy.table_name, "partition": copy.partition}
    connection.execute(update(tasks).where(tasks.c.memo_key == key).values(**place))


def _columns_read(connection: Connection, fingerprints: Iterable[str]) -> dict[str, set[str]]:
    of = schema.component_columns.c
    found: dict[str, set[str]] = {fingerprint: set() for fingerprint in fingerprints}
    for chunk in chunks(sorted(found)):
        for row in connection.execute(
            select(of.fingerprint, of.column_name).where(one_of(connection, of.fingerprint, chunk))
        ):
            found[row.fingerprint].add(row.column_name)
    return found
