"""The versions of a table: when each was made, by what, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, select

from warehouse.catalog import schema
from warehouse.tables.manifests import get_table


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table. ``at`` and ``source`` are unknown of versions that older releases registered.

    ``rows`` and ``fragments``: those that the change touched. ``partitions``: those that got a new manifest.
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
