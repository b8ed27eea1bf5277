"""Reading tables, manifests and fragments from the catalog."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, and_, exists, func, or_, select

from transforms.errors import nearest
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of, rows_of
from warehouse.catalog.fragment_rows import is_unit
from warehouse.errors import UnknownTable
from warehouse.tables.evolution.fragment_schema import FragmentSchema
from warehouse.tables.table import ColumnSchema, Fragment, Manifest, Overlay, Table

#: The column of a deletion vector in its file.
DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class PlacedFragment:
    """A fragment with its row in the catalog, its partition, that partition's version, and its position.

    A merged fragment has the place of its first member; ``end`` and ``last_partition`` of one in :func:`current_units` are its
    last member's.
    """

    row: int
    partition: str
    partition_version: int
    start: datetime
    end: datetime
    position: int
    fragment: Fragment
    is_merged: bool = False
    last_partition: str = ""


def find_table(connection: Connection, name: str) -> Table | None:
    """The table of this name, or None if it is unknown or dropped."""
    of = schema.tables.c
    row = connection.execute(select(schema.tables).where(of.name == name, of.dropped_at.is_(None))).first()
    return None if row is None else _table(row)


def get_table(connection: Connection, name: str) -> Table:
    """The table of this name. Raises :class:`UnknownTable` with the nearest names."""
    table = find_table(connection, name)
    if table is None:
        of = schema.tables.c
        known = connection.execute(select(of.name).where(of.dropped_at.is_(None))).scalars().all()
        raise UnknownTable("no such table", value=name, allowed=nearest(name, known),
                           next_step="register it: headrace table add NAME ROOT")  # fmt: skip
    return table


def all_tables(connection: Connection) -> tuple[Table, ...]:
    """Every table that is not dropped, by name."""
    of = schema.tables.c
    query = select(schema.tables).where(of.dropped_at.is_(None)).order_by(of.name)
    return tuple(_table(row) for row in connection.execute(query))


def _table(row: Any) -> Table:
    return Table(row.name, row.root, parse_columns(row.columns), row.time_column, row.version)


def columns_document(columns: Iterable[ColumnSchema]) -> list[list[object]]:
    """Columns as stored in a row of ``tables``."""
    return [one.to_document() for one in columns]


def parse_columns(document: Iterable[Sequence[Any]]) -> tuple[ColumnSchema, ...]:
    """The inverse of :func:`columns_document`."""
    return tuple(map(ColumnSchema.from_document, document))


def fragment_schema(connection: Connection, table: str) -> FragmentSchema:
    """How fragments of ``table`` are read now."""
    columns = connection.execute(select(schema.tables.c.columns).where(schema.tables.c.name == table)).scalar() or []
    return FragmentSchema(parse_columns(columns))


def current_fragments(
    connection: Connection,
    table: str,
    start: datetime | None = None,
    end: datetime | None = None,
    *,
    at_version: int | None = None,
) -> tuple[PlacedFragment, ...]:
    """The fragments of every partition that starts in ``[start, end)``, in time order.

    ``at_version``: time travel to that version of the table; columns that were added later are null, and widened ones have
    their wider type.
    """
    query = _versions(_placed_query(), table, start, end, at_version)
    columns = fragment_schema(connection, table)
    return tuple(_placed(row, columns) for row in rows_of(connection, query))


def current_units(connection: Connection, table: str) -> tuple[PlacedFragment, ...]:
    """The units of computation of a table: its merged fragments, without members, and its other fragments, in time order."""
    query = _placed_query(placed_units(), schema.merged_fragments.c.merged).where(is_placed_unit())
    columns = fragment_schema(connection, table)
    found = []
    for row in rows_of(connection, _versions(query, table, None, None, None)):
        placed = _placed(row, columns)
        if row.merged is not None:  # deletions are its members'
            whole = replace(placed.fragment, deletions=None, deleted_rows=0)
            placed = replace(placed, fragment=whole, is_merged=True)
        found.append(placed)
    if not any(placed.is_merged for placed in found):
        return tuple(found)
    last = _last_places(connection, table)
    return tuple(_until(placed, *last[placed.row]) if placed.is_merged else placed for placed in found)


def _until(placed: PlacedFragment, last_partition: str, end_at: float) -> PlacedFragment:
    return replace(placed, end=datetime.fromtimestamp(end_at, UTC), last_partition=last_partition)


def _last_places(connection: Connection, table: str) -> dict[int, tuple[str, float]]:
    """The partition of each merged fragment's last member, and its end in epoch seconds."""
    parts, manifests, members = schema.merged_fragments, schema.manifests.c, schema.manifest_fragments.c
    later = parts.alias()
    is_last = ~exists().where(later.c.merged == parts.c.merged, later.c.position == parts.c.position + 1)
    query = (
        select(parts.c.merged, manifests.partition, manifests.end_at)
        .join(schema.manifest_fragments, members.fragment == parts.c.fragment)
        .join(schema.manifests, manifests.id == members.manifest)
        .where(manifests.table_name == table, manifests.current.is_(True), is_last)
    )
    return {row.merged: (row.partition, row.end_at) for row in connection.execute(query)}


def _versions(query: Any, table: str, start: datetime | None, end: datetime | None, at_version: int | None) -> Any:
    """``query`` over the manifests of one version of the table, of the partitions that start in ``[start, end)``."""
    manifests = schema.manifests
    query = query.where(manifests.c.table_name == table)
    if at_version is None:
        query = query.where(manifests.c.current.is_(True))
    else:
        newest = (
            select(manifests.c.partition, func.max(manifests.c.version).label("version"))
            .where(manifests.c.table_name == table, manifests.c.table_version <= at_version)
            .group_by(manifests.c.partition)
            .subquery()
        )
        same = and_(newest.c.partition == manifests.c.partition, newest.c.version == manifests.c.version)
        query = query.join(newest, same)
    if start is not None:
        query = query.where(manifests.c.start_at >= start.timestamp())
    if end is not None:
        query = query.where(manifests.c.start_at < end.timestamp())
    return query


def arrival_times(connection: Connection, table: str) -> dict[int, float]:
    """When each fragment of the table, by its row, first was in it; epoch seconds. A merged one arrives with its last member."""
    manifests, members, changes = schema.manifests.c, schema.manifest_fragments.c, schema.changes.c
    change = and_(changes.table_name == manifests.table_name, changes.table_version == manifests.table_version)
    query = (
        select(members.fragment, func.min(changes.created_at))
        .join(schema.manifests, manifests.id == members.manifest)
        .join(schema.changes, change)
        .where(manifests.table_name == table)
        .group_by(members.fragment)
    )
    found = {row: float(at) for row, at in connection.execute(query)}
    of = schema.merged_fragments.c
    merges = select(of.fragment, of.merged).join(schema.fragments, schema.fragments.c.id == of.merged)
    for row in connection.execute(merges.where(schema.fragments.c.table_name == table)):
        if row.fragment in found:
            found[row.merged] = max(found[row.fragment], found.get(row.merged, 0.0))
    return found


def earlier_fragments(connection: Connection, table: str, partitions: Iterable[str]) -> tuple[PlacedFragment, ...]:
    """The fragments of superseded versions of these partitions, newest version last."""
    query = _placed_query().where(
        schema.manifests.c.table_name == table,
        schema.manifests.c.current.is_(False),
        schema.manifests.c.partition.in_(sorted(partitions)),
    )
    columns = fragment_schema(connection, table)
    return tuple(_placed(row, columns) for row in connection.execute(query))


def _placed_query(source: FromClause | None = None, *columns: ColumnElement[Any]) -> Any:
    """Fragments with their places, from the join of manifests, their members and the fragments."""
    manifests, members, fragments = schema.manifests, schema.manifest_fragments, schema.fragments
    if source is None:
        source = fragments.join(members, members.c.fragment == fragments.c.id)
        source = source.join(manifests, manifests.c.id == members.c.manifest)
    return (
        select(
            fragments,
            manifests.c.partition,
            manifests.c.version,
            manifests.c.start_at,
            manifests.c.end_at,
            members.c.position,
            members.c.deletions,
            members.c.deletions_checksum,
            members.c.deleted_rows,
            *columns,
        )
        .select_from(source)
        .order_by(manifests.c.start_at, manifests.c.partition, manifests.c.version, members.c.position)
    )


def _placed(row: Any, columns: FragmentSchema) -> PlacedFragment:
    start, end = datetime.fromtimestamp(row.start_at, UTC), datetime.fromtimestamp(row.end_at, UTC)
    deletions = Overlay(DELETED, row.deletions, row.deletions_checksum) if row.deletions else None
    fragment = fragment_of(row, columns, deletions=deletions, deleted_rows=row.deleted_rows or 0)
    return PlacedFragment(row.id, row.partition, row.version, start, end, row.position, fragment)


def fragment_of(
    row: Any,
    columns: FragmentSchema,
    members: Sequence[Fragment] = (),
    *,
    deletions: Overlay | None = None,
    deleted_rows: int = 0,
) -> Fragment:
    """The fragment in a row of ``fragments``, as ``columns`` read it.

    Args:
        row: It says nothing of deletions, which belong to a manifest.
        columns: The table's current schema.
        members: Those of a merged fragment, if they will be read.
        deletions: The deletion vector in the manifest.
        deleted_rows: The number of its events.
    """
    digests, overlaid = row.digests, row.overlays
    overlays = (
        tuple(Overlay(column, path, digests[column]) for column, path in sorted(overlaid.items())) if overlaid else ()
    )
    fragment = Fragment(row.fragment_id, row.path, tuple(row.row_groups), row.rows, row.size_bytes, digests,
                        overlays=overlays, members=tuple(members), levels=row.levels or {}, digest_types=row.digest_types or {},
                        deletions=deletions, deleted_rows=deleted_rows)  # fmt: skip
    return columns.of(fragment)


def fragments_by_row(connection: Connection, rows: Collection[int]) -> dict[int, Fragment]:
    """The fragments in these rows of the catalog, merged ones with their members, without deletions.

    They are read by the tables' current schemas.
    """
    stored = _stored_fragments(connection, rows)
    parts = _stored_fragments(connection, {part for row in stored.values() for part in row.members or ()})
    columns = {table: fragment_schema(connection, table) for table in {row.table_name for row in stored.values()}}
    return {
        number: fragment_of(row, columns[row.table_name],
                            [fragment_of(parts[part], columns[row.table_name]) for part in row.members or ()])
        for number, row in stored.items()
    }  # fmt: skip


def file_digests(connection: Connection, table: str, fragments: Iterable[Fragment]) -> dict[str, Mapping[str, str]]:
    """The digests of the columns in the files of those of ``fragments`` that have overlays, by ``fragment_id``."""
    of = schema.fragments.c
    wanted = sorted({fragment.fragment_id for fragment in fragments if fragment.overlays})
    found: dict[str, Mapping[str, str]] = {}
    for chunk in chunks(wanted):
        query = select(of.fragment_id, of.digests)
        query = query.where(of.table_name == table, of.overlays.is_(None), of.fragment_id.in_(chunk))
        found.update((row.fragment_id, row.digests) for row in connection.execute(query))
    return found


def _stored_fragments(connection: Connection, rows: Collection[int]) -> dict[int, Any]:
    of = schema.fragments.c
    return {
        row.id: row
        for chunk in chunks(sorted(rows))
        for row in connection.execute(select(schema.fragments).where(one_of(connection, of.id, chunk)))
    }


def placed_units() -> FromClause:
    """Current manifests joined with their units of computation; use it with :func:`is_placed_unit`."""
    fragments, members, parts = schema.fragments, schema.manifest_fragments, schema.merged_fragments
    return (
        schema.manifests.join(members, members.c.manifest == schema.manifests.c.id)
        .outerjoin(parts, parts.c.fragment == members.c.fragment)
        .join(fragments, fragments.c.id == func.coalesce(parts.c.merged, members.c.fragment))
    )


def is_placed_unit() -> ColumnElement[bool]:
    """The condition on a row of :func:`placed_units`: a merged fragment has the place of its first member."""
    position = schema.merged_fragments.c.position
    return and_(schema.manifests.c.current.is_(True), or_(position.is_(None), position == 0))


def current_fragment_rows(connection: Connection, rows: Collection[int]) -> set[int]:
    """The rows among these whose fragment is a unit of computation of a table now."""
    of = schema.fragments.c.id
    found: set[int] = set()
    for chunk in chunks(sorted(rows)):
        found.update(connection.execute(select(of).where(one_of(connection, of, chunk), is_unit(of))).scalars())
    return found


def table_manifests(connection: Connection, table: str, *, at_version: int | None = None) -> tuple[Manifest, ...]:
    """The manifest of every partition, in time order, of the current or another version. Raises :class:`UnknownTable`."""
    get_table(connection, table)
    grouped: dict[str, list[PlacedFragment]] = {}
    for placed in current_fragments(connection, table, at_version=at_version):
        grouped.setdefault(placed.partition, []).append(placed)
    return tuple(
        Manifest(table, partition, group[0].partition_version, group[0].start, group[0].end,
                 tuple(placed.fragment for placed in group))
        for partition, group in grouped.items()
    )  # fmt: skip
