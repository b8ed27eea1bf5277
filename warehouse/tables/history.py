"""The history of a table: its versions with time, change and reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, select

from transforms.errors import NotFound
from warehouse.catalog import schema
from warehouse.tables.evolution.schema_changes import SchemaChange, schema_changes
from warehouse.tables.manifests import get_table, parse_columns
from warehouse.tables.table import ColumnSchema


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
        schema: the columns that are new or hold values of a wider type since then.
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
    schema: tuple[SchemaChange, ...] = ()


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
    before: tuple[ColumnSchema, ...] | None = None
    for version in range(1, newest + 1):
        row, count = known.get(version), partitions.get(version, 0)
        if row is None:
            versions.append(TableVersion(version, None, "register", (), 0, 0, count, "", ""))
            continue
        at = datetime.fromtimestamp(row.created_at, UTC)
        columns = tuple(row.columns)
        after = before if row.schema is None else parse_columns(row.schema)
        changed = schema_changes(before, after) if before is not None and after is not None else ()
        before = None if row.kind == "drop" else after
        versions.append(
            TableVersion(version, at, row.kind, columns, row.rows, row.fragments, count, row.source, row.why, changed)
        )
    return tuple(versions)


def schema_at(connection: Connection, table: str, version: int) -> tuple[ColumnSchema, ...]:
    """The columns of a table at a version. Raises :class:`~warehouse.errors.UnknownTable`, and :class:`NotFound` for the version.

    For versions of releases that did not record them, those of the first version that did.
    """
    known = get_table(connection, table)
    if not 1 <= version <= known.version:
        raise NotFound(f"table {table!r} has no such version", value=version, allowed=f"1 to {known.version}",
                       next_step=f"headrace table history {table} lists them")  # fmt: skip
    of = schema.changes.c
    query = select(of.table_version, of.schema).where(of.table_name == table, of.schema.is_not(None))
    recorded = connection.execute(query.order_by(of.table_version)).all()
    earlier = [row for row in recorded if row.table_version <= version]
    if not recorded:
        return known.columns
    return parse_columns((earlier[-1] if earlier else recorded[0]).schema)
