"""List the ready memos of components that an eviction may take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, and_, exists, func, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.eviction.plan import EvictionRequest, ReadyMemo
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.merges import merged_with_partition

#: Components per statement.
_COMPONENTS = 1_000

#: Rows that are in memory at a time.
_ROWS = 10_000


def ready_memos(connection: Connection, request: EvictionRequest, fingerprints: Sequence[str]) -> Iterator[ReadyMemo]:
    """The ready memos of these components that fulfil the request, by component. Reads lazily."""
    of, fragments = schema.memos.c, schema.fragments.c
    columns: tuple[Any, ...] = (of.memo_key, of.fingerprint, of.file, fragments.table_name, fragments.partition, of.rows, of.size_bytes, of.secs,
               of.created_at, of.changed_at, of.fragment)  # fmt: skip
    for chunk in chunks(fingerprints, _COMPONENTS):
        query = select(*columns).join(schema.fragments, fragments.id == of.fragment)
        query = query.where(of.fingerprint.in_(chunk), *_ready(request)).order_by(of.fingerprint)
        for row in connection.execute(query, execution_options={"yield_per": _ROWS}):
            yield ReadyMemo(*row)


def count_ready(connection: Connection, request: EvictionRequest, fingerprints: Sequence[str]) -> int:
    """The number of :func:`ready_memos`."""
    of, placed = schema.memos.c, schema.memos.join(schema.fragments, schema.fragments.c.id == schema.memos.c.fragment)
    counted = select(func.count()).select_from(placed).where(*_ready(request))
    return sum(
        connection.execute(counted.where(of.fingerprint.in_(chunk))).scalar_one()
        for chunk in chunks(fingerprints, _COMPONENTS)
    )


def _ready(request: EvictionRequest) -> list[Any]:
    """Conditions on a memo and its fragment, which has the table and the partition."""
    of, fragments, manifests = schema.memos.c, schema.fragments.c, schema.manifests.c
    where = [of.state == MemoState.READY]
    if request.written_before is not None:
        where.append(of.changed_at < request.written_before)
    if request.written_after is not None:
        where.append(of.changed_at >= request.written_after)
    if request.query.table is not None:
        where.append(fragments.table_name == request.query.table)
    starts = [] if request.start is None else [manifests.start_at >= request.start.timestamp()]
    starts += [] if request.end is None else [manifests.start_at < request.end.timestamp()]
    if starts:
        same = (manifests.table_name == fragments.table_name, manifests.partition == fragments.partition)
        where.append(exists().where(*same, *starts))
        where.append(of.fragment.not_in(merged_with_partition(~and_(*starts))))
    return where
