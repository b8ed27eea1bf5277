"""What the catalog knows of a lake: its version, its live files, and the parts that hold their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_numbered
from warehouse.errors import CatalogBusy
from warehouse.lakes.parts import NewPart
from warehouse.tables.followed import FollowedLake


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file of the lake at the table's version: the state of its deletions, and the ids of the parts with its rows."""

    state: str
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KnownPart:
    """A part: its file, and the file of its origins, relative to the home."""

    path: str
    origins: str


def known_files(connection: Connection, table: str) -> dict[str, KnownFile]:
    """The files of the lake at the table's version, by path."""
    of = schema.lake_files
    rows = connection.execute(select(of).where(of.c.table_name == table))
    return {row.path: KnownFile(row.state, tuple(row.parts)) for row in rows}


def known_parts(connection: Connection, table: str) -> dict[int, KnownPart]:
    """Every part of a table, by id."""
    of = schema.lake_parts
    rows = connection.execute(select(of).where(of.c.table_name == table))
    return {row.id: KnownPart(row.path, row.origins) for row in rows}


def check_lake(connection: Connection, table: str, expected: FollowedLake | None, where: str) -> None:
    """Raise :class:`CatalogBusy` unless the table has the rows of the expected version of its lake."""
    of = schema.lakes.c
    version = connection.execute(select(of.version).where(of.table_name == table).with_for_update()).scalar()
    if version != (None if expected is None else expected.version):
        raise CatalogBusy("another process refreshed this table meanwhile", where=where, value=table,
                          next_step="run the command again")  # fmt: skip


def write_lake(connection: Connection, table: str, lake: FollowedLake, *, is_new: bool) -> None:
    """Set the lake that a table follows."""
    of = schema.lakes
    values = {"location": lake.location, "format": lake.format, "lake_id": lake.lake_id, "version": lake.version,
              "partition_by": lake.partition_by, "time_unit": lake.time_unit, "keys": list(lake.keys)}  # fmt: skip
    if is_new:
        connection.execute(insert(of).values(table_name=table, **values))
    else:
        connection.execute(update(of).where(of.c.table_name == table).values(**values))


def write_parts(
    connection: Connection, table: str, new: Sequence[NewPart], moved: Mapping[int, str]
) -> Mapping[int, NewPart]:
    """Write new parts, by their ids then, and the new origins of parts whose rows have other ones now."""
    of = schema.lake_parts
    for part, origins in moved.items():
        connection.execute(update(of).where(of.c.id == part).values(origins=origins))
    rows = [{"table_name": table, "path": one.file.file.path, "origins": one.origins} for one in new]
    return dict(zip(insert_numbered(connection, of, rows), new, strict=True)) if rows else {}


def write_files(connection: Connection, table: str, gone: Iterable[str], files: Mapping[str, KnownFile]) -> None:
    """Remove files of the lake, and write those that are new or whose deletions changed."""
    of = schema.lake_files
    for paths in chunks(sorted({*gone, *files})):
        connection.execute(delete(of).where(of.c.table_name == table, of.c.path.in_(paths)))
    rows = [
        {"table_name": table, "path": path, "state": one.state, "parts": list(one.parts)} for path, one in files.items()
    ]
    if rows:
        connection.execute(insert(of), rows)
