"""Publishing a change: files first, then one transaction.

A process that is killed leaves the old version and perhaps unreferenced files; no path is ever used twice. ``gc`` deletes old
unreferenced files under the catalog's write lock, so the transaction checks under the same lock that its files exist.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlalchemy import Connection, insert, select, update

from warehouse.catalog import schema
from warehouse.errors import MissingFile
from warehouse.files.arrow_file import write_arrow_file
from warehouse.files.column_files import MemoFile
from warehouse.storage.layout import OVERLAYS, SUFFIX
from warehouse.storage.storage import Storage
from warehouse.storage.stored_file import ListedFile
from warehouse.tables.evolution.evolved import EvolvedSchema
from warehouse.tables.manifests import PlacedFragment, columns_document
from warehouse.tables.table import Fragment, Table
from warehouse.tables.versions import ChangeNote, Entry, check_version, record_change, write_fragments, write_manifests
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class WrittenOverlay:
    """A written file and the types of its columns."""

    file: MemoFile
    types: Mapping[str, str]


class OverlayWriter:
    """Writes the files of one change, and deletes them if the change fails."""

    def __init__(self, storage: Storage, table: str) -> None:
        self._storage, self._table = storage, table
        self.written: list[str] = []

    def write(
        self, placed: PlacedFragment, columns: Mapping[str, pa.Array], digests: Mapping[str, str]
    ) -> WrittenOverlay:
        """Write columns of one fragment, with their digests, as a file with a new name."""
        fragment_id = placed.fragment.fragment_id
        path = f"{OVERLAYS}/{self._table}/{placed.partition}/{fragment_id[:16]}-{uuid.uuid4().hex}.{SUFFIX}"
        self.written.append(path)
        file = write_arrow_file(self._storage, path, columns, digests)
        return WrittenOverlay(file, {name: str(array.type) for name, array in columns.items()})

    def discard(self) -> None:
        """Delete the written files; must not be called once the transaction has begun."""
        for path in self.written:
            self._storage.delete(path)


@dataclass(frozen=True)
class Replacement:
    """``fragment``, which replaces ``placed``; ``file`` holds its new columns, if any."""

    placed: PlacedFragment
    fragment: Fragment
    file: WrittenOverlay | None

    @property
    def changes_content(self) -> bool:
        """Whether columns changed, which needs a new row of the fragment; deletions alone do not."""
        return self.fragment.overlays != self.placed.fragment.overlays


def commit_replacements(
    warehouse: Warehouse,
    table: Table,
    current: Sequence[PlacedFragment],
    replacements: Sequence[Replacement],
    note: ChangeNote,
    evolved: EvolvedSchema | None = None,
) -> int:
    """Write the version of ``table`` with ``replacements`` and return its number.

    ``current``: all fragments of the affected partitions. ``evolved``: the schema that the change makes. Raises
    :class:`~warehouse.errors.CatalogBusy` if the table changed meanwhile, :class:`~warehouse.errors.MissingFile` if a file of the
    change was deleted, and :class:`~warehouse.errors.SchemaDrift` if a live model could not read it.
    """
    return warehouse.catalog.run(
        lambda connection: apply_replacements(connection, warehouse, table, current, replacements, note, evolved)
    )


def apply_replacements(
    connection: Connection,
    warehouse: Warehouse,
    table: Table,
    current: Sequence[PlacedFragment],
    replacements: Sequence[Replacement],
    note: ChangeNote,
    evolved: EvolvedSchema | None = None,
) -> int:
    """:func:`commit_replacements` inside the caller's transaction."""
    written = [one.file.file.path for one in replacements if one.file is not None]
    require_files(warehouse.storage, written, table.name)
    change = begin_version(connection, warehouse, table, note, evolved)
    fresh = [one for one in replacements if one.changes_content]
    rows = write_fragments(connection, table.name, ((one.placed.partition, one.fragment) for one in fresh))
    row_of = {one.placed.row: row for one, row in zip(fresh, rows, strict=True)}
    entries = {one.placed.row: Entry(row_of.get(one.placed.row, one.placed.row), one.fragment.deletions,
                                     one.fragment.deleted_rows) for one in replacements}  # fmt: skip
    partitions: dict[str, list[Entry]] = {one.placed.partition: [] for one in replacements}
    for placed in current:
        if placed.partition in partitions:
            partitions[placed.partition].append(entries.get(placed.row) or Entry.of(placed))
    write_manifests(connection, table.name, table.version + 1, partitions)
    _write_overlays(connection, change, replacements)
    return table.version + 1


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file of new rows in a partition, and its fragments."""

    partition: str
    file: ListedFile
    fragments: tuple[Fragment, ...]


def apply_new_files(
    connection: Connection,
    warehouse: Warehouse,
    table: Table,
    current: Sequence[PlacedFragment],
    files: Sequence[NewFile],
    note: ChangeNote,
    evolved: EvolvedSchema | None = None,
) -> int:
    """Write the version of ``table`` with further files inside the caller's transaction, and return its number."""
    require_files(warehouse.storage, [one.file.path for one in files], table.name)
    begin_version(connection, warehouse, table, note, evolved)
    partitions: dict[str, list[Entry]] = {one.partition: [] for one in files}
    for placed in current:
        if placed.partition in partitions:
            partitions[placed.partition].append(Entry.of(placed))
    add_files(connection, table, files, partitions, table.version + 1)
    return table.version + 1


def add_files(
    connection: Connection, table: Table, files: Sequence[NewFile], partitions: dict[str, list[Entry]], version: int
) -> None:
    """Write fragments, manifests and rows of new files; ``partitions`` has the entries that stay before them."""
    for one in files:
        rows = write_fragments(connection, table.name, ((one.partition, fragment) for fragment in one.fragments))
        partitions[one.partition] += map(Entry, rows)
    write_manifests(connection, table.name, version, partitions)
    listed = [
        {"table_name": table.name, "path": one.file.path, "partition": one.partition,
         "size_bytes": one.file.size_bytes, "mtime_ns": one.file.mtime_ns}
        for one in files
    ]  # fmt: skip
    if listed:
        connection.execute(insert(schema.files), listed)


def create_table(
    connection: Connection, warehouse: Warehouse, table: Table, files: Sequence[NewFile], note: ChangeNote
) -> Table:
    """Write the first version of a new table with these files, or the next of one that was dropped, inside the caller's transaction."""
    of, name, now = schema.tables, table.name, warehouse.clock()
    check_version(connection, name, None, warehouse.catalog.where)
    before = connection.execute(select(of.c.version).where(of.c.name == name)).scalar()
    table = replace(table, version=(before or 0) + 1)
    values = {"root": table.root, "time_column": table.time_column, "columns": columns_document(table.columns),
              "version": table.version, "registered_at": now, "dropped_at": None}  # fmt: skip
    if before is None:
        connection.execute(insert(of).values(name=name, **values))
    else:
        connection.execute(update(of).where(of.c.name == name).values(**values))
    record_change(connection, warehouse, name, table.version, note, now)
    require_files(warehouse.storage, [one.file.path for one in files], name)
    partitions: dict[str, list[Entry]] = {one.partition: [] for one in sorted(files, key=lambda one: one.partition)}
    add_files(connection, table, files, partitions, table.version)
    return table


def require_files(storage: Storage, paths: Sequence[str], table: str) -> None:
    """Raise :class:`MissingFile` unless every file of a change exists. The caller holds the write lock."""
    for path in storage.missing(paths)[:1]:
        raise MissingFile(
            "a file of a change must exist until the change is committed, and it was deleted",
            where=f"table {table}",
            value=path,
            next_step="make the change again; --leftover-hours of headrace gc must be longer than a change takes",
        )


def begin_version(
    connection: Connection,
    warehouse: Warehouse,
    table: Table,
    note: ChangeNote,
    evolved: EvolvedSchema | None = None,
) -> int:
    """Set the table's next version in the caller's transaction and return the row of the change.

    The live models are checked again with the schema that the change makes: one may have been submitted meanwhile.
    """
    check_version(connection, table.name, table.version, warehouse.catalog.where)
    of = schema.tables
    values: dict[str, object] = {"version": table.version + 1}
    if evolved is not None:
        evolved.check(connection)
    if evolved is not None and evolved.columns != table.columns:
        values["columns"] = columns_document(evolved.columns)
        note = replace(note, schema=evolved.columns)
    connection.execute(update(of).where(of.c.name == table.name).values(**values))
    return record_change(connection, warehouse, table.name, table.version + 1, note, warehouse.clock())


def _write_overlays(connection: Connection, change: int, replacements: Sequence[Replacement]) -> None:
    rows = [
        {"path": one.file.file.path, "column_name": column, "change": change,
         "fragment_id": one.fragment.fragment_id, "arrow_type": one.file.types[column], "checksum": stored.checksum,
         "rows": stored.rows, "size_bytes": stored.size_bytes}
        for one in replacements if one.file is not None
        for column, stored in one.file.file.columns.items()
    ]  # fmt: skip
    if rows:
        connection.execute(insert(schema.overlays), rows)
