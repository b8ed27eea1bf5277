"""Register a folder of hive-partitioned Parquet as a table, in place.

All files are read and checked before one transaction writes the result, so a registration that fails or is killed changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlalchemy import Connection, delete, insert, select, update

from transforms.errors import DataError, TypeMismatch
from transforms.names import check_name
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.storage.stored_file import ListedFile
from warehouse.tables.carry_over import carry_over
from warehouse.tables.evolution.evolved import EvolvedSchema, FileSchema, evolved_schema
from warehouse.tables.evolution.known_values import KnownValues
from warehouse.tables.evolution.schema import with_levels
from warehouse.tables.evolution.schema_changes import SchemaChange
from warehouse.tables.followed import refuse_followed
from warehouse.tables.fragment_sizes import fragment_sizes
from warehouse.tables.lake_folders import refuse_lakes
from warehouse.tables.manifests import PlacedFragment, columns_document, current_fragments, file_digests, find_table
from warehouse.tables.overflow import check_overflow, overflowing_types, refuse_overflow
from warehouse.tables.parquet import OnInvalidText, OnRows, invalid_text_rule, read_fragments, read_schema
from warehouse.tables.readable_types import UnreadableColumn, unreadable_columns
from warehouse.tables.scan import ScannedFolder, refuse_half_imports, scan_partitions
from warehouse.tables.table import ColumnSchema, Fragment, Table
from warehouse.tables.value_checks import ValueChecks, times_rule
from warehouse.tables.versions import ChangeNote, Entry, check_version, record_change, write_fragments, write_manifests
from warehouse.warehouse import Warehouse

#: Called as ``progress(done_bytes, total_bytes, path)`` before each file is read and once at the end.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Registration:
    """The result of a registration.

    Attributes:
        table: the table, at its new version.
        added: new partitions.
        changed: changed partitions.
        removed: removed partitions.
        unchanged: the number of unchanged partitions.
        rows: the rows of the whole table.
        bytes: its compressed bytes on disk.
        dropped: overlays and deletions of files that changed or were removed, one text per file.
        replaced: columns of fragments in which invalid text is replaced by U+FFFD, one text each.
        unreadable: columns of types that no model reads.
        unfit: columns of new files with values that their declared type cannot hold, one text each; a model that reads
            them fails.
        outside: the number of events of new files with a time outside their partition, and the first of them.
        small_fragments: a warning with the sizes of the table's fragments and the next step; empty if they are large enough.
        schema_changes: columns that are new, or hold values of a wider type now.
        lacking: columns that some new file does not have, which are null there.
        levels: the levels of folders that are columns.
        unread_levels: levels whose files have a column of that name with other values, one text each; the files' are read.
    """

    table: Table
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int
    rows: int
    bytes: int
    dropped: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    unreadable: tuple[UnreadableColumn, ...] = ()
    unfit: tuple[str, ...] = ()
    outside: str = ""
    small_fragments: str = ""
    schema_changes: tuple[SchemaChange, ...] = ()
    lacking: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    unread_levels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """The table in the catalog before the registration."""

    table: Table | None
    files: Mapping[str, tuple[str, int, int]]  # path -> partition, size, mtime
    fragments: Mapping[str, tuple[PlacedFragment, ...]]  # by path
    file_digests: Mapping[str, Mapping[str, str]]  # of fragments with overlays, by fragment_id

    @property
    def placed(self) -> list[tuple[str, Fragment]]:
        """Its fragments, each with its partition."""
        return [(one.partition, one.fragment) for placed in self.fragments.values() for one in placed]

    def values(self, columns: Sequence[ColumnSchema]) -> KnownValues:
        """Its values, in a table with these columns."""
        return KnownValues.of(columns, (fragment for _, fragment in self.placed), self.file_digests)


def register_table(
    warehouse: Warehouse,
    name: str,
    root: str,
    *,
    time_column: str | None = None,
    progress: Progress | None = None,
    invalid_text: str = "refuse",
    outside_times: str = "keep",
) -> Registration:
    """Register ``<root>/date=YYYY-MM-DD[/hour=HH]/*.parquet`` as table ``name``, or update it.

    A file with known path, size and modification time is not read again. Names that start with ``.`` or ``_`` are ignored. Other
    levels of folders (``country=DE``) are columns of text. New files may have other columns, and wider or narrower types, than
    those before (:mod:`warehouse.tables.evolution`). Columns that no model can read are registered and reported.

    Args:
        warehouse: the warehouse.
        name: the name of the table.
        root: its folder.
        time_column: the column with the events' times.
        progress: called before each file and at the end.
        invalid_text: ``refuse`` text that is not UTF-8, or ``replace`` invalid bytes by U+FFFD.
        outside_times: ``keep`` events of new files whose time is outside their partition, or ``refuse`` the file; a time
            column without a unit is not checked.

    Raises :class:`~transforms.errors.InvalidText`, :class:`~warehouse.errors.EmptyPartition`,
    :class:`~warehouse.errors.SchemaDrift`, :class:`~warehouse.errors.CorruptFile`, :class:`DataError` for a folder that is not a
    time partition, :class:`InputError` for the folder of a lake, and :class:`~warehouse.errors.CatalogBusy` if another process registered the table meanwhile.
    """
    root = _check_name_and_root(warehouse, name, root)
    with warehouse.catalog.read() as connection:
        refuse_followed(connection, name, "a registration of files")
    refuse_lakes(warehouse.storage, [root])
    refuse_half_imports(warehouse.storage, root)
    scanned = scan_partitions(warehouse.storage, root)
    refuse_half_imports(warehouse.storage, root)
    found = scanned.partitions
    with warehouse.catalog.read() as connection:
        known = _load_known(connection, name)
    if known.table is not None and time_column is None:
        time_column = known.table.time_column
    fresh = [file for files in found.values() for file in files if not _is_known(file, root, known, scanned)]
    evolved = _evolved(warehouse, name, known, scanned, fresh, time_column)
    replaced: list[str] = []
    checks = ValueChecks(
        time_column,
        times_rule(outside_times),
        {file.path: key for key, files in found.items() for file in files},
        {file.path: scanned.levels[file.path].columns for file in fresh},
    )
    kept = {file.path for files in found.values() for file in files} - {file.path for file in fresh}
    refuse_overflow(warehouse.storage, evolved, (fragment for _, fragment in known.placed if fragment.path in kept))
    overflowing = overflowing_types(evolved.columns)

    def on_rows(path: str, first_row: int, rows: pa.Table) -> None:
        check_overflow(rows, overflowing, path, f"table {name!r}")
        checks.check(path, first_row, rows)

    read = _FileReader(
        warehouse, progress, invalid_text_rule(invalid_text, replaced), on_rows, known.values(evolved.columns), scanned
    ).read(fresh)

    def write(connection: Connection) -> Registration:
        check_version(connection, name, known.table.version if known.table else None, warehouse.catalog.where)
        evolved.check(connection)
        change = _Change(connection, warehouse, warehouse.clock(), name, root, evolved, time_column, known, found, read)
        return replace(
            change.apply(),
            replaced=tuple(replaced),
            unreadable=unreadable_columns(evolved.columns),
            unfit=tuple(checks.unfit),
            outside=checks.outside,
            small_fragments=fragment_sizes(connection, name).warning(name),
            lacking=evolved.lacking,
            levels=tuple(level for level in scanned.column_names if level not in checks.unread_levels),
            unread_levels=tuple(checks.unread_levels.values()),
        )

    return warehouse.catalog.run(write)


def check_table_name(warehouse: Warehouse, name: str) -> None:
    """Raise :class:`InputError` unless a table has this name, as one of an earlier release may, or can have it."""
    with warehouse.catalog.read() as connection:
        if find_table(connection, name) is None:
            check_name(name, "a table")


def _check_name_and_root(warehouse: Warehouse, name: str, root: str) -> str:
    check_table_name(warehouse, name)
    if not warehouse.storage.folder_exists(root):
        raise DataError("no such folder", where=f"root of table {name!r}", value=root,
                        next_step="give the folder that holds the date=... folders")  # fmt: skip
    return warehouse.storage.absolute(root)


def _load_known(connection: Connection, name: str) -> _Known:
    files = schema.files
    known_files = {
        row.path: (row.partition, row.size_bytes, row.mtime_ns)
        for row in connection.execute(select(files).where(files.c.table_name == name))
    }
    fragments: dict[str, tuple[PlacedFragment, ...]] = {}
    for placed in current_fragments(connection, name):
        fragments[placed.fragment.path] = (*fragments.get(placed.fragment.path, ()), placed)
    listed = [one.fragment for placed in fragments.values() for one in placed]
    return _Known(find_table(connection, name), known_files, fragments, file_digests(connection, name, listed))


def _is_known(file: ListedFile, root: str, known: _Known, scanned: ScannedFolder) -> bool:
    """Whether a file was read before, with the levels that its folders state below ``root``."""
    before = known.files.get(file.path)
    if before is None or before[1:] != (file.size_bytes, file.mtime_ns):
        return False
    if known.table is not None and known.table.root == root:
        return True
    stated = {name: value for name, value in scanned.levels[file.path].columns.items() if value is not None}
    return all(dict(one.fragment.levels) == stated for one in known.fragments.get(file.path, ()))


def _evolved(
    warehouse: Warehouse,
    name: str,
    known: _Known,
    scanned: ScannedFolder,
    fresh: Iterable[ListedFile],
    time_column: str | None,
) -> EvolvedSchema:
    """The table's columns with those of the fresh files, by their footers and folders."""
    partitions = {file.path: key for key, files in scanned.partitions.items() for file in files}
    files: list[FileSchema] = []
    for file in fresh:
        columns = with_levels(read_schema(warehouse.storage, file.path), scanned.levels[file.path].columns)
        if files and files[-1].columns == columns:
            columns = files[-1].columns  # one tuple for files of one schema, which is quick to compare
        files.append(FileSchema(file.path, partitions[file.path], columns))
    found = evolved_schema(warehouse.catalog, known.table, name, "add", files, time_column, known.placed)
    if not found.columns:
        raise DataError("the files of a table must have a column", where=name)
    if time_column is not None:
        stored = Table(name, "", found.columns, None, 0).column(time_column)
        if not stored.arrow_type.startswith(("timestamp", "int", "date")):
            raise TypeMismatch("the time column must have a time type", where=f"table {name!r}, column {time_column}",
                               value=stored.arrow_type, allowed="a timestamp, a date or an integer")  # fmt: skip
    return found


@dataclass(frozen=True)
class _FileReader:
    """Reads new files of a table, one after another."""

    warehouse: Warehouse
    progress: Progress | None
    on_invalid_text: OnInvalidText
    on_rows: OnRows
    known: KnownValues
    scanned: ScannedFolder

    def read(self, fresh: Sequence[ListedFile]) -> dict[str, tuple[Fragment, ...]]:
        """The fragments of each file, by its path."""
        total_bytes = sum(file.size_bytes for file in fresh)
        done_bytes = 0
        read = {}
        config = self.warehouse.config
        for file in fresh:
            if self.progress:
                self.progress(done_bytes, total_bytes, file.path)
            read[file.path] = read_fragments(
                self.warehouse.storage, file.path, config.fragment_rows, config.read_threads, self.on_invalid_text, self.on_rows,
                known=self.known, levels=self.scanned.levels[file.path].columns,
            )  # fmt: skip
            done_bytes += file.size_bytes
        if self.progress and fresh:
            self.progress(done_bytes, total_bytes, fresh[-1].path)
        return read


@dataclass(frozen=True)
class _Change:
    """The changes of a registration, inside one transaction."""

    connection: Connection
    warehouse: Warehouse
    now: float
    name: str
    root: str
    evolved: EvolvedSchema
    time_column: str | None
    known: _Known
    found: Mapping[str, tuple[ListedFile, ...]]
    read: Mapping[str, tuple[Fragment, ...]]

    def apply(self) -> Registration:
        """Write the differences and return the result."""
        before: dict[str, set[str]] = {}
        for path, (partition, _, _) in self.known.files.items():
            before.setdefault(partition, set()).add(path)
        added = tuple(key for key in self.found if key not in before)
        removed = tuple(sorted(key for key in before if key not in self.found))
        changed = tuple(key for key in self.found if key in before and self._differs(key, before[key]))
        differs = bool(added or changed or removed)
        table = self._write_table(differs)
        carried = carry_over(
            [placed for kept in self.known.fragments.values() for placed in kept if self._is_lost(placed)],
            self.known.file_digests,
            self._fresh(),
        )
        entries = self._write_fragments(carried.fragments)
        touched = {key: self.found.get(key, ()) for key in (*added, *changed, *removed)}
        partitions = {key: [entry for file in files for entry in entries[file.path]] for key, files in touched.items()}
        write_manifests(self.connection, self.name, table.version, partitions)
        self._write_files()
        if differs:
            new = [fragment for fragments in self.read.values() for fragment in fragments]
            rows = sum(fragment.rows for fragment in new)
            schema = self.evolved.columns if self.evolved.columns != self.evolved.before else None
            note = ChangeNote("register", (), rows, len(new), self.root, "", schema)
            record_change(self.connection, self.warehouse, self.name, table.version, note, self.now)
        current = [
            fragment for files in self.found.values() for file in files for fragment in self._fragments(file.path)
        ]
        rows, size_bytes = sum(one.rows for one in current), sum(one.size_bytes for one in current)
        unchanged = len(self.found) - len(added) - len(changed)
        return Registration(table, added, changed, removed, unchanged, rows, size_bytes, carried.dropped,
                            schema_changes=self.evolved.changes)  # fmt: skip

    def _fresh(self) -> dict[str, tuple[str, tuple[Fragment, ...]]]:
        """The partition and the fragments of every file that was read now, by path."""
        return {
            file.path: (key, self.read[file.path])
            for key, files in self.found.items()
            for file in files
            if file.path in self.read
        }

    def _is_lost(self, placed: PlacedFragment) -> bool:
        path = placed.fragment.path
        return path in self.read or all(path != file.path for file in self.found.get(placed.partition, ()))

    def _fragments(self, path: str) -> Sequence[Fragment]:
        return self.read[path] if path in self.read else [one.fragment for one in self.known.fragments.get(path, ())]

    def _differs(self, key: str, paths_before: set[str]) -> bool:
        paths = {file.path for file in self.found[key]}
        return paths != paths_before or any(path in self.read for path in paths)

    def _write_table(self, differs: bool) -> Table:
        of = schema.tables
        # The row of a dropped table remains, so its versions continue.
        before = self.connection.execute(select(of.c.version).where(of.c.name == self.name)).scalar()
        table = Table(self.name, self.root, self.evolved.columns, self.time_column, (before or 0) + differs)
        values = {
            "root": table.root,
            "time_column": table.time_column,
            "columns": columns_document(table.columns),
            "version": table.version,
            "registered_at": self.now,
            "dropped_at": None,
        }
        if before is None:
            self.connection.execute(insert(of).values(name=table.name, **values))
        else:
            self.connection.execute(update(of).where(of.c.name == table.name).values(**values))
        return table

    def _write_fragments(self, carried: Mapping[str, tuple[Fragment, ...]]) -> dict[str, tuple[Entry, ...]]:
        """The entries for manifests, by path: files that were read now, and unchanged files."""
        entries = {path: tuple(map(Entry.of, placed)) for path, placed in self.known.fragments.items()}
        partition_of = {path: partition for path, (partition, _) in self._fresh().items()}
        new = [(partition_of[path], fragment) for path, fragments in carried.items() for fragment in fragments]
        rows = iter(write_fragments(self.connection, self.name, new))
        for path, fragments in carried.items():
            entries[path] = tuple(Entry(next(rows), one.deletions, one.deleted_rows) for one in fragments)
        for file in (file for files in self.found.values() for file in files):
            entries.setdefault(file.path, ())  # a file without rows
        return entries

    def _write_files(self) -> None:
        files = schema.files
        here = {file.path for listed in self.found.values() for file in listed}
        outdated = [path for path in self.known.files if path not in here or path in self.read]
        for paths in chunks(outdated):
            self.connection.execute(delete(files).where(files.c.table_name == self.name, files.c.path.in_(paths)))
        rows = [
            {"table_name": self.name, "path": file.path, "partition": key, "size_bytes": file.size_bytes,
             "mtime_ns": file.mtime_ns}
            for key, listed in self.found.items() for file in listed if file.path in self.read
        ]  # fmt: skip
        if rows:
            self.connection.execute(insert(files), rows)
