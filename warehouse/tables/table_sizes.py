"""The sizes of tables, summed by the catalog: no fragment is read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, select

from warehouse.catalog import schema
from warehouse.tables.manifests import all_tables
from warehouse.tables.table import Table


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table with the size of its current version.

    Attributes:
        table: The table.
        partitions: Its partitions.
        fragments: The fragments of the partitions.
        rows: Their events, including deleted ones.
        bytes: Those on disk.
        start: Where the first partition starts; None without one.
        end: Where the last partition ends; None without one.
    """

    table: Table
    partitions: int
    fragments: int
    rows: int
    bytes: int
    start: datetime | None
    end: datetime | None


def read_table_statuses(connection: Connection) -> tuple[TableStatus, ...]:
    """All tables with their sizes, by their names."""
    manifests, members, fragments = schema.manifests, schema.manifest_fragments, schema.fragments
    query = (
        select(manifests.c.table_name, func.count(manifests.c.id.distinct()), func.count(), func.sum(fragments.c.rows),
               func.sum(fragments.c.size_bytes), func.min(manifests.c.start_at), func.max(manifests.c.end_at))
        .join(members, members.c.manifest == manifests.c.id)
        .join(fragments, fragments.c.id == members.c.fragment)
        .where(manifests.c.current.is_(True))
        .group_by(manifests.c.table_name)
    )  # fmt: skip
    sizes = {name: (parts, count, int(rows), int(size), _moment(start), _moment(end))
             for name, parts, count, rows, size, start, end in connection.execute(query)}  # fmt: skip
    return tuple(TableStatus(one, *sizes.get(one.name, (0, 0, 0, 0, None, None))) for one in all_tables(connection))


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
