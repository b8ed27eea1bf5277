"""The fragments whose joined columns are not those of what they see now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import Connection, select

from transforms.errors import DataError, InputError, UnknownColumn
from warehouse.catalog import schema
from warehouse.joins.time_ranges import timed_fragments
from warehouse.joins.views import TimedFragment, Views
from warehouse.matching.join_checks import time_column
from warehouse.models.joined_columns import JoinedRecord, joined_columns, wanted_columns
from warehouse.tables.manifests import PlacedFragment, current_fragments, find_table
from warehouse.tables.table import Table
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class OutdatedFragment:
    """A fragment with the joined columns that it needs, each with the digest of its view."""

    own: TimedFragment
    columns: tuple[tuple[JoinedRecord, str], ...]


@dataclass(frozen=True)
class KnownViews:
    """The views that the joined columns of a table had.

    Attributes:
        checksums: Of each view, the checksum of the values.
        versions: Of each column and checksum, the version of the other table that these values were last computed from.
    """

    checksums: Mapping[str, str]
    versions: Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class OutdatedJoins:
    """The outdated fragments of one table whose columns are joined from one other table, in time order.

    Attributes:
        table: The table whose columns are joined.
        other: The table that they are joined from.
        views: What fragments see of it.
        fragments: The outdated fragments.
        known: What is known of the table's joined columns.
    """

    table: Table
    other: Table
    views: Views
    fragments: tuple[OutdatedFragment, ...]
    known: KnownViews


@dataclass(frozen=True)
class UnreadableJoins:
    """Joined columns of one table from one other one whose times cannot be read.

    Attributes:
        table: The table whose columns are joined.
        other: The table that they are joined from.
        records: The columns.
        error: Why.
    """

    table: Table
    other: Table
    records: tuple[JoinedRecord, ...]
    error: str


#: Errors of the data of one table or column; an unavailable catalog, or a full disk, is not among them.
DATA_ERRORS = (DataError, InputError, UnknownColumn, pa.ArrowException, MemoryError)


def outdated_joins(
    warehouse: Warehouse, only: Collection[tuple[str, str]] | None = None
) -> Iterator[OutdatedJoins | UnreadableJoins]:
    """What is to be computed of the joined columns that live models read, or of those in ``only`` (table and column).

    Columns that failed are left out until one of their tables has changed. The times of new fragments are read.
    """
    with warehouse.catalog.read() as connection:
        wanted = wanted_columns(connection).keys() if only is None else only
        records = [one for one in joined_columns(connection) if (one.table, one.column) in wanted]
    groups: defaultdict[tuple[str, str], list[JoinedRecord]] = defaultdict(list)
    for one in records:
        groups[one.table, one.other_table].append(one)
    for (table, other), group in sorted(groups.items()):
        found = _outdated(warehouse, table, other, group)
        if isinstance(found, UnreadableJoins) or (found is not None and found.fragments):
            yield found


def _outdated(
    warehouse: Warehouse, name: str, other_name: str, records: Sequence[JoinedRecord]
) -> OutdatedJoins | UnreadableJoins | None:
    with warehouse.catalog.read() as connection:
        table, other = find_table(connection, name), find_table(connection, other_name)
        if table is None or other is None:
            return None  # dropped; the models that read it are retired
        own, others = current_fragments(connection, name), current_fragments(connection, other_name)
        known = _known_views(connection, name)
    records = [one for one in records if one.failed_at != (table.version, other.version)]
    if not records:
        return None
    try:
        return _compared(warehouse, (table, own), (other, others), records, known)
    except DATA_ERRORS as error:
        return UnreadableJoins(table, other, tuple(records), str(error))


def _compared(
    warehouse: Warehouse,
    own_side: tuple[Table, Sequence[PlacedFragment]],
    other_side: tuple[Table, Sequence[PlacedFragment]],
    records: Sequence[JoinedRecord],
    known: KnownViews,
) -> OutdatedJoins:
    (table, own), (other, others) = own_side, other_side
    own_time, other_time = (time_column(one, f"table {table.name}, joined columns") for one in (table, other))
    views = Views(own_time, timed_fragments(warehouse, others, other_time), other_time)
    fragments = []
    for timed in timed_fragments(warehouse, own, own_time):
        digests = timed.placed.fragment.digests
        columns = []
        for record in records:
            view, has = views.digest(record, timed), digests.get(record.column)
            if has is None or known.checksums.get(view) != has:
                columns.append((record, view))
        if columns:
            fragments.append(OutdatedFragment(timed, tuple(columns)))
    return OutdatedJoins(table, other, views, tuple(fragments), known)


def _known_views(connection: Connection, table: str) -> KnownViews:
    of = schema.joined_views.c
    query = select(of.view, of.column_name, of.checksum, of.other_version).where(of.table_name == table)
    checksums: dict[str, str] = {}
    versions: dict[tuple[str, str], int] = {}
    for view, column, checksum, version in connection.execute(query.order_by(of.computed_at, of.other_version)):
        checksums[view], versions[column, checksum] = checksum, version
    return KnownViews(checksums, versions)


@dataclass(frozen=True)
class JoinVersions:
    """What decides whether joined columns are outdated: if it has not changed, neither has the answer."""

    columns: frozenset[tuple[str, str, str]]
    tables: frozenset[tuple[str, int]]


def join_versions(connection: Connection) -> JoinVersions:
    """The joined columns that live models read, and the versions of their tables."""
    wanted = wanted_columns(connection)
    records = [one for one in joined_columns(connection) if (one.table, one.column) in wanted]
    tables = _versions(connection, {name for one in records for name in (one.table, one.other_table)})
    return JoinVersions(frozenset((one.table, one.column, one.error) for one in records), tables)


def _versions(connection: Connection, names: Iterable[str]) -> frozenset[tuple[str, int]]:
    of = schema.tables.c
    query = select(of.name, of.version).where(of.name.in_(sorted(names)))
    return frozenset((name, version) for name, version in connection.execute(query))
