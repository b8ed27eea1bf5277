"""List, count and sum the ready memos of components that an eviction may take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, and_, exists, func, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.eviction.plan import EvictionRequest
from warehouse.eviction.stored_memos import StoredMemos
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.merges import merged_with_partition

#: Components per statement.
_COMPONENTS = 1_000

#: Rows that are in memory at a time.
_ROWS = 2_000


def ready_memos(connection: Connection, request: EvictionRequest, fingerprints: Sequence[str]) -> Iterator[StoredMemos]:
    """The ready memos of these components that fulfil the request, by component and key, some at a time."""
    of = schema.memos.c
    columns = [of[field.name] for field in fields(StoredMemos)]
    for chunk in chunks(fingerprints, _COMPONENTS):
        query = select(*columns).select_from(_placed(request)).where(one_of(connection, of.fingerprint, chunk))
        query = query.where(*_ready(request)).order_by(of.fingerprint, of.memo_key)
        for rows in connection.execute(query, execution_options={"yield_per": _ROWS}).partitions():
            yield StoredMemos.of(rows)


def places_of(connection: Connection, fragments: Sequence[int]) -> dict[int, tuple[str, str]]:
    """The table and partition of each fragment; of a merged one, the first partition."""
    of = schema.fragments.c
    places: dict[int, tuple[str, str]] = {}
    for chunk in chunks(fragments):
        query = select(of.id, of.table_name, of.partition).where(one_of(connection, of.id, chunk))
        places.update((row.id, (row.table_name, row.partition)) for row in connection.execute(query))
    return places


def count_ready(connection: Connection, request: EvictionRequest, fingerprints: Sequence[str] | None) -> int:
    """The number of :func:`ready_memos`; None: of all components."""
    return _total(connection, request, fingerprints, func.count())


def ready_bytes(connection: Connection, request: EvictionRequest, fingerprints: Sequence[str] | None) -> int:
    """The bytes of :func:`ready_memos`; None: of all components."""
    return _total(connection, request, fingerprints, func.coalesce(func.sum(schema.memos.c.size_bytes), 0))


def _total(connection: Connection, request: EvictionRequest, fingerprints: Sequence[str] | None, value: Any) -> int:
    query = select(value).select_from(_placed(request)).where(*_ready(request))
    return sum(
        int(connection.execute(query.where(*some)).scalar_one()) for some in _of_components(connection, fingerprints)
    )


@dataclass(frozen=True, slots=True)
class ComponentSums:
    """The ready memos of a component that fulfil a request. ``changed_at``: when the newest became ready, in epoch seconds."""

    fingerprint: str
    memos: int
    rows: int
    size_bytes: int
    secs: float
    changed_at: float


def sum_by_component(
    connection: Connection, request: EvictionRequest, fingerprints: Sequence[str] | None
) -> Iterator[ComponentSums]:
    """The sums of :func:`ready_memos` by component, for components with any; None: of all components. The database adds."""
    of = schema.memos.c
    sums = (func.count(), func.sum(of.rows), func.sum(of.size_bytes), func.sum(of.secs), func.max(of.changed_at))
    for name, memos, rows, size_bytes, secs, changed_at in _grouped(
        connection, request, fingerprints, of.fingerprint, sums
    ):
        yield ComponentSums(name, memos, int(rows), int(size_bytes), float(secs), float(changed_at))


def sum_by_file(
    connection: Connection, request: EvictionRequest, fingerprints: Sequence[str] | None
) -> Iterator[tuple[int, int, int]]:
    """File, memos and bytes of :func:`ready_memos`; a file may come several times. None: of all components."""
    of = schema.memos.c
    for file, memos, size_bytes in _grouped(
        connection, request, fingerprints, of.file, (func.count(), func.sum(of.size_bytes))
    ):
        yield file, memos, int(size_bytes)


def _grouped(
    connection: Connection, request: EvictionRequest, fingerprints: Sequence[str] | None, key: Any, sums: Sequence[Any]
) -> Iterator[Any]:
    query = select(key, *sums).select_from(_placed(request)).where(*_ready(request)).group_by(key)
    for some in _of_components(connection, fingerprints):
        yield from connection.execute(query.where(*some), execution_options={"yield_per": _ROWS})


def _of_components(
    connection: Connection, fingerprints: Sequence[str] | None
) -> Iterator[tuple[ColumnElement[bool], ...]]:
    """The condition of each statement: some of these components, or all of the catalog, which a database reads in its own order."""
    if fingerprints is None:
        yield ()
        return
    for chunk in chunks(fingerprints, _COMPONENTS):
        yield (one_of(connection, schema.memos.c.fingerprint, chunk),)


def _placed(request: EvictionRequest) -> FromClause:
    """The memos, with their fragments if :func:`_ready` has a condition on these."""
    if request.query.table is None and request.start is None and request.end is None:
        return schema.memos
    return schema.memos.join(schema.fragments, schema.fragments.c.id == schema.memos.c.fragment)


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
