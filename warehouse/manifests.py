"""Tables, manifests and fragments in the catalog: reading them as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select

from transforms.errors import nearest
from warehouse import schema
from warehouse.errors import UnknownTable
from warehouse.table import ColumnSchema, Fragment, Manifest, Table


@dataclass(frozen=True, slots=True)
class PlacedFragment:
    """A fragment where it stands: its row in the catalog, partition, that partition's version, and position."""

    row: int
    partition: str
    partition_version: int
    start: datetime
    end: datetime
    position: int
    fragment: Fragment


def find_table(connection: Connection, name: str) -> Table | None:
    """The table of this name, or None."""
    row = connection.execute(select(schema.tables).where(schema.tables.c.name == name)).first()
    return None if row is None else _table(row)


def get_table(connection: Connection, name: str) -> Table:
    """The table of this name. Raises :class:`UnknownTable` with the nearest names."""
    table = find_table(connection, name)
    if table is None:
        known = connection.execute(select(schema.tables.c.name)).scalars().all()
        raise UnknownTable("no such table", value=name, allowed=nearest(name, known),
                           next_step="register it: headrace table add NAME ROOT")  # fmt: skip
    return table


def all_tables(connection: Connection) -> tuple[Table, ...]:
    """Every table, by name."""
    return tuple(_table(row) for row in connection.execute(select(schema.tables).order_by(schema.tables.c.name)))


def _table(row: Any) -> Table:
    columns = tuple(ColumnSchema(name, arrow_type) for name, arrow_type in row.columns)
    return Table(row.name, row.root, columns, row.time_column, row.version)


def current_fragments(
    connection: Connection, table: str, start: datetime | None = None, end: datetime | None = None
) -> tuple[PlacedFragment, ...]:
    """The fragments of every partition that starts in ``[start, end)``, in time order."""
    query = _placed_query().where(schema.manifests.c.table_name == table, schema.manifests.c.current.is_(True))
    if start is not None:
        query = query.where(schema.manifests.c.start_at >= start.timestamp())
    if end is not None:
        query = query.where(schema.manifests.c.start_at < end.timestamp())
    return tuple(_placed(row) for row in connection.execute(query))


def earlier_fragments(connection: Connection, table: str, partitions: Iterable[str]) -> tuple[PlacedFragment, ...]:
    """The fragments of superseded versions of these partitions, newest version last."""
    query = _placed_query().where(
        schema.manifests.c.table_name == table,
        schema.manifests.c.current.is_(False),
        schema.manifests.c.partition.in_(sorted(partitions)),
    )
    return tuple(_placed(row) for row in connection.execute(query))


def _placed_query() -> Any:
    manifests, members, fragments = schema.manifests, schema.manifest_fragments, schema.fragments
    return (
        select(
            fragments,
            manifests.c.partition,
            manifests.c.version,
            manifests.c.start_at,
            manifests.c.end_at,
            members.c.position,
        )
        .join(members, members.c.fragment == fragments.c.id)
        .join(manifests, manifests.c.id == members.c.manifest)
        .order_by(manifests.c.start_at, manifests.c.partition, manifests.c.version, members.c.position)
    )


def _placed(row: Any) -> PlacedFragment:
    start, end = (datetime.fromtimestamp(at, UTC) for at in (row.start_at, row.end_at))
    return PlacedFragment(row.id, row.partition, row.version, start, end, row.position, fragment_of(row))


def fragment_of(row: Any) -> Fragment:
    """The value of a row of ``fragments``."""
    groups = tuple(row.row_groups)
    return Fragment(row.fragment_id, row.path, groups, row.rows, row.size_bytes, row.digests)


def table_manifests(connection: Connection, table: str) -> tuple[Manifest, ...]:
    """The current manifest of every partition, in time order. Raises :class:`UnknownTable`."""
    get_table(connection, table)
    grouped: dict[str, list[PlacedFragment]] = {}
    for placed in current_fragments(connection, table):
        grouped.setdefault(placed.partition, []).append(placed)
    return tuple(
        Manifest(table, partition, group[0].partition_version, group[0].start, group[0].end,
                 tuple(placed.fragment for placed in group))
        for partition, group in grouped.items()
    )  # fmt: skip
