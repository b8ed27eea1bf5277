"""The lake that a table follows."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from transforms.errors import InputError
from warehouse.catalog import schema
from warehouse.tables.lake_folders import LakeFormat


@dataclass(frozen=True, slots=True)
class FollowedLake:
    """The lake of a table, at the version whose rows the table has.

    Attributes:
        location: the folder, URI, or name in a catalog.
        format: ``delta`` or ``iceberg``.
        lake_id: the identity of the lake's table.
        version: the version of Delta, or the snapshot of Iceberg.
        partition_by: ``hour`` or ``day``.
        time_unit: the unit of a time column of integers; else empty.
        keys: the columns that identify a row through changes.
    """

    location: str
    format: LakeFormat
    lake_id: str
    version: str
    partition_by: str
    time_unit: str
    keys: tuple[str, ...]


def followed_lake(connection: Connection, table: str) -> FollowedLake | None:
    """The lake that a table follows; None for a table of files."""
    row = connection.execute(select(schema.lakes).where(schema.lakes.c.table_name == table)).first()
    if row is None:
        return None
    return FollowedLake(
        row.location, row.format, row.lake_id, row.version, row.partition_by, row.time_unit, tuple(row.keys)
    )


def refuse_followed(connection: Connection, table: str, command: str) -> None:
    """Raise :class:`InputError` for a table that follows a lake, whose files are not those of a folder."""
    lake = followed_lake(connection, table)
    if lake is not None:
        raise InputError(f"{command} needs a table of files: this table follows a lake", where=f"table {table}",
                         value=lake.location,
                         next_step=f"headrace table add {table} {lake.location} brings its newest rows")  # fmt: skip
