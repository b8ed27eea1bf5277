"""The evictions that were done, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import storable
from warehouse.errors import UnknownEviction
from warehouse.eviction.plan import EvictionPlan
from warehouse.scheduling.task_states import MemoState
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class PastEviction:
    """An eviction that was done.

    Attributes:
        number: Its number, by which it is restored.
        evicted_at: When, in epoch seconds.
        why: The reason that was given.
        who: The user.
        request: The conditions as text.
        plan: The identity of the evicted memos.
        memos: Their number then.
        size_bytes: Their bytes then.
        kept_memos: Those that can still be restored.
        kept_bytes: Their bytes.
        restored_at: When it was last restored, in epoch seconds.
        restored_by: The user who restored it.
    """

    number: int
    evicted_at: float
    why: str
    who: str
    request: str
    plan: str
    memos: int
    size_bytes: int
    kept_memos: int
    kept_bytes: int
    restored_at: float | None = None
    restored_by: str | None = None


def record_eviction(connection: Connection, plan: EvictionPlan, *, why: str, who: str, now: float) -> int:
    """Enter an eviction that is being done; returns its number."""
    of = schema.evictions
    values = {"evicted_at": now, "why": storable(why.strip()), "who": storable(who), "request": storable(plan.request), "plan": plan.id,
              "memos": plan.memos, "size_bytes": plan.bytes}  # fmt: skip
    return int(connection.execute(insert(of).values(**values).returning(of.c.id)).scalar_one())


def list_evictions(warehouse: Warehouse, *, limit: int = 50, before: int | None = None) -> tuple[PastEviction, ...]:
    """The newest evictions; ``before``: those with smaller numbers."""
    of = schema.evictions.c
    query = select(schema.evictions).order_by(of.id.desc()).limit(limit)
    if before is not None:
        query = query.where(of.id < before)
    with warehouse.catalog.read() as connection:
        return _past(connection, connection.execute(query).all())


def get_eviction(connection: Connection, number: int) -> PastEviction:
    """One eviction. Raises :class:`~warehouse.errors.UnknownEviction`."""
    of = schema.evictions.c
    is_number = 0 < number < 2**63  # SQLite has no larger one to compare with
    row = connection.execute(select(schema.evictions).where(of.id == number)).first() if is_number else None
    if row is None:
        newest = connection.execute(select(func.max(of.id))).scalar_one()
        known = "none was done yet" if newest is None else f"1 to {newest}"
        raise UnknownEviction("no such eviction", value=number, allowed=known, next_step="headrace graphs evictions")
    return _past(connection, [row])[0]


def _past(connection: Connection, rows: Sequence[Any]) -> tuple[PastEviction, ...]:
    memos = schema.memos.c
    kept = select(memos.eviction, func.count(), func.coalesce(func.sum(memos.size_bytes), 0)).select_from(kept_memos())
    kept = kept.where(memos.eviction.in_([row.id for row in rows]), *is_kept()).group_by(memos.eviction)
    counts = {eviction: (count, int(size_bytes)) for eviction, count, size_bytes in connection.execute(kept)}
    return tuple(
        PastEviction(row.id, row.evicted_at, row.why, row.who, row.request, row.plan, row.memos, row.size_bytes, *counts.get(row.id, (0, 0)),
                     restored_at=row.restored_at, restored_by=row.restored_by)
        for row in rows
    )  # fmt: skip


def kept_memos() -> Any:
    """Tombstones with the file that had their memo, and the table of their fragment."""
    memos, files, fragments, tables = schema.memos, schema.memo_files, schema.fragments, schema.tables
    return (
        memos.join(files, files.c.id == memos.c.evicted_file)
        .join(fragments, fragments.c.id == memos.c.fragment)
        .join(tables, tables.c.name == fragments.c.table_name)
    )


def is_kept() -> tuple[Any, ...]:
    """Conditions on :func:`kept_memos`: nothing has become of the memo since, ``gc`` has not begun to delete its file, and its table is there."""
    return (
        schema.memos.c.state == MemoState.EVICTED,
        schema.memo_files.c.collected_at.is_(None),
        schema.tables.c.dropped_at.is_(None),
    )
