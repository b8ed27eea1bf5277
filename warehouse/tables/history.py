"""The history of a table: its versions with time, change and reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, select

from warehouse.catalog import schema
from warehouse.tables.manifests import get_table


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table.

    Attributes:
        version: its number.
        at: its time; None for versions that older releases registered.
        kind: the kind of the change.
        columns: the columns that the change affected.
        rows: the rows that it affected.
        fragments: the fragments that it affected.
        partitions: the number of partitions with a new manifest.
        source: the file or folder of the new data.
        why: the reason that was given.
    """

    version: int
    at: datetime | None
    kind: str
    columns: tuple[str, ...]
    rows: int
    fragments: int
    partitions: int
    source: str
    why: str


def table_history(connection: Connection, table: str) -> tuple[TableVersion, ...]:
    """Every version of a table, oldest first. Raises :class:`~warehouse.errors.UnknownTable`."""
    newest = get_table(connection, table).version
    of, manifests = schema.changes.c, schema.manifests.c
    known = {row.table_version: row for row in connection.execute(select(schema.changes).where(of.table_name == table))}
    counted = connection.execute(
        select(manifests.table_version, func.count())
        .where(manifests.table_name == table)
        .group_by(manifests.table_version)
    )
    partitions = {row[0]: row[1] for row in counted}
    versions = []
    for version in range(1, newest + 1):
        row, count = known.get(version), partitions.get(version, 0)
        if row is None:
            versions.append(TableVersion(version, None, "register", (), 0, 0, count, "", ""))
            continue
        at = datetime.fromtimestamp(row.created_at, UTC)
        columns = tuple(row.columns)
        versions.append(
            TableVersion(version, at, row.kind, columns, row.rows, row.fragments, count, row.source, row.why)
        )
    return tuple(versions)
