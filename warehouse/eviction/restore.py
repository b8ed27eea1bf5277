"""Undo an eviction: tombstones become ready memos again while ``gc`` has not deleted their files.

An eviction changes rows only, so its memos are whole in their files until ``gc`` deletes those. ``gc`` marks a file in a transaction of its own before it
deletes the bytes (``memo_files.collected_at``), and a restoration takes no memo of a marked file: in whichever order the two come, a ready memo
has a file that stays. Memos that were queued, computed or evicted again since, or whose table was dropped, are left as they are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of, storable
from warehouse.eviction.history import PastEviction, get_eviction, is_kept, kept_memos
from warehouse.memos.coverage import add_coverage, count_live_bytes, removed_coverage
from warehouse.scheduling.task_states import MemoState
from warehouse.search.components import live_models, live_models_around
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class Restoration:
    """The effect of undoing an eviction.

    Attributes:
        eviction: The eviction, before.
        done: Whether it was done, not only planned.
        memos: The memos that become ready again.
        components: Their components.
        rows: Their rows.
        size_bytes: Their bytes.
        secs: The computing seconds that they took, which nothing has to spend again.
        collected_memos: Memos whose files ``gc`` has deleted, or is deleting.
        changed_memos: Memos that were queued, computed or evicted again since, or whose table was dropped.
        models: The live models that read the components.
    """

    eviction: PastEviction
    done: bool
    memos: int
    components: int
    rows: int
    size_bytes: int
    secs: float
    collected_memos: int
    changed_memos: int
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    key: str
    fingerprint: str
    file: int


def plan_restoration(warehouse: Warehouse, eviction: int) -> Restoration:
    """What :func:`restore_evicted` would do now. Changes nothing. Raises :class:`~warehouse.errors.UnknownEviction`."""
    with warehouse.catalog.read() as connection:
        return _plan(connection, eviction)[0]


def restore_evicted(warehouse: Warehouse, eviction: int, *, who: str = "") -> Restoration:
    """Make the memos of an eviction ready again, as far as their files exist; returns what was done.

    A memo has the time again at which it was computed. A second call restores nothing more. Raises
    :class:`~warehouse.errors.UnknownEviction`.
    """

    def act(connection: Connection) -> Restoration:
        now = warehouse.clock()
        planned, kept = _plan(connection, eviction)
        if kept:
            _make_ready(connection, kept, eviction, now)
            of = schema.evictions
            restored = {"restored_at": now, "restored_by": storable(who)}
            connection.execute(update(of).where(of.c.id == eviction).values(**restored))
        return replace(planned, done=True)

    return warehouse.catalog.run(act)


def _plan(connection: Connection, eviction: int) -> tuple[Restoration, list[_Kept]]:
    past, memos, files = get_eviction(connection, eviction), schema.memos.c, schema.memo_files.c
    query = select(memos.memo_key, memos.fingerprint, memos.evicted_file, memos.rows, memos.size_bytes, memos.secs)
    query = query.select_from(kept_memos()).where(memos.eviction == eviction, *is_kept()).order_by(memos.memo_key)
    rows = connection.execute(query).all()
    components = sorted({row.fingerprint for row in rows})
    readers = {**live_models_around(connection, components), **live_models(connection, components)}
    tombstones = select(func.count()).where(memos.eviction == eviction, memos.state == MemoState.EVICTED)
    whole = tombstones.where(memos.evicted_file.in_(select(files.id).where(files.collected_at.is_(None))))
    left, with_file = (connection.execute(one).scalar_one() for one in (tombstones, whole))
    collected = left - with_file
    restored = 0 if past.restored_at is None else _restored(connection, eviction)
    return Restoration(
        eviction=past,
        done=False,
        memos=len(rows),
        components=len(components),
        rows=sum(row.rows for row in rows),
        size_bytes=sum(row.size_bytes for row in rows),
        secs=sum(row.secs for row in rows),
        collected_memos=collected,
        changed_memos=max(past.memos - len(rows) - collected - restored, 0),
        models=tuple(sorted({name for names in readers.values() for name in names})),
    ), [_Kept(row.memo_key, row.fingerprint, row.evicted_file) for row in rows]  # fmt: skip


def _restored(connection: Connection, eviction: int) -> int:
    """The memos of an eviction that were restored, and are ready."""
    memos = schema.memos.c
    ready = select(func.count()).where(memos.eviction == eviction, memos.state == MemoState.READY)
    return int(connection.execute(ready).scalar_one())


def _make_ready(connection: Connection, kept: list[_Kept], eviction: int, now: float) -> None:
    of = schema.memos.c
    values: dict[str, Any] = {"state": MemoState.READY, "file": of.evicted_file, "changed_at": of.evicted_ready_at, "evicted_at": None,
                              "evicted_why": None}  # fmt: skip
    for chunk in chunks([one.key for one in kept]):
        connection.execute(update(schema.memos).where(one_of(connection, of.memo_key, chunk)).values(**values))
    back: defaultdict[int, set[str]] = defaultdict(set)
    for one in kept:
        back[one.file].add(one.fingerprint)
    places = {
        place: fingerprints & back[place[0]]
        for place, fingerprints in removed_coverage(connection, eviction).items()
        if place[0] in back
    }
    add_coverage(connection, {place: fingerprints for place, fingerprints in places.items() if fingerprints})
    removed = schema.evicted_coverage
    connection.execute(delete(removed).where(removed.c.eviction == eviction))  # nothing of it can be restored again
    count_live_bytes(connection, back, now)
