"""Register a folder of hive-partitioned Parquet as a table, in place.

Everything is read and checked before anything is written, and what is written is one transaction: a registration
that fails, or is killed, leaves the catalog as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, update

from transforms.errors import DataError, InputError, TypeMismatch
from warehouse import schema
from warehouse.catalog import chunks
from warehouse.errors import CatalogBusy
from warehouse.manifests import columns_document, current_fragments, find_table
from warehouse.parquet_files import check_drift, read_fragments, read_schema
from warehouse.partitions import partition_range
from warehouse.scan import refuse_half_imports, scan_partitions
from warehouse.storage import StoredFile
from warehouse.table import ColumnSchema, Fragment, Table
from warehouse.warehouse import Warehouse

#: Called as ``progress(done_bytes, total_bytes, path)`` before each file is read and once at the end.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Registration:
    """What a registration found: partitions that are new, changed and gone, and how many stayed as they were.

    ``rows`` and ``bytes`` (compressed, on disk) are those of the whole table as it stands now.
    """

    table: Table
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Known:
    """What the catalog knows of the table before the registration."""

    table: Table | None
    files: Mapping[str, tuple[str, int, int]]  # path -> partition, size, mtime
    fragments: Mapping[str, tuple[int, ...]]  # path -> rows of `fragments`
    rows_bytes: Mapping[int, tuple[int, int]]


def register_table(
    warehouse: Warehouse,
    name: str,
    root: str,
    *,
    time_column: str | None = None,
    progress: Progress | None = None,
) -> Registration:
    """Register ``<root>/date=YYYY-MM-DD[/hour=HH]/*.parquet`` as table ``name``, or bring it up to date.

    A file that is known by path, size and modification time is not read again. Names that start with ``.`` or ``_``
    are ignored. A table keeps the columns it was first registered with. Raises
    :class:`~warehouse.errors.EmptyPartition`, :class:`~warehouse.errors.SchemaDrift`,
    :class:`~warehouse.errors.CorruptFile`, :class:`DataError` for a folder that is no time partition, and
    :class:`CatalogBusy` when another process registered the same table meanwhile.
    """
    root = _check_name_and_root(warehouse, name, root)
    refuse_half_imports(warehouse.storage, root)
    found = scan_partitions(warehouse.storage, root)
    refuse_half_imports(warehouse.storage, root)
    with warehouse.catalog.read() as connection:
        known = _load_known(connection, name)
    if known.table is not None and time_column is None:
        time_column = known.table.time_column
    fresh = [file for files in found.values() for file in files if not _is_known(file, known)]
    columns = _checked_columns(warehouse, name, known, fresh, time_column)
    read = _read_all(warehouse, fresh, progress)
    with warehouse.catalog.write() as connection:
        version = connection.execute(select(schema.tables.c.version).where(schema.tables.c.name == name)).scalar()
        if version != (known.table.version if known.table else None):
            raise CatalogBusy("another process registered this table meanwhile", where=warehouse.catalog.where,
                              value=name, next_step="run the command again")  # fmt: skip
        change = _Change(connection, warehouse.clock(), name, root, columns, time_column, known, found, read)
        return change.apply()


def check_table_name(name: str) -> None:
    """Raise :class:`InputError` unless ``name`` can name a table, and so a folder."""
    sound = all(letter.isalnum() or letter in "_.-" for letter in name) and not name.startswith(".")
    if not name or len(name) > 128 or not sound:
        raise InputError("not a name for a table", value=name,
                         allowed="letters, digits, '_', '.', '-', at most 128, no '.' first")  # fmt: skip


def _check_name_and_root(warehouse: Warehouse, name: str, root: str) -> str:
    check_table_name(name)
    if not warehouse.storage.folder_exists(root):
        raise DataError("no such folder", where=f"root of table {name!r}", value=root,
                        next_step="give the folder that holds the date=... folders")  # fmt: skip
    return warehouse.storage.absolute(root)


def _load_known(connection: Connection, name: str) -> _Known:
    files, of = schema.files, schema.fragments
    known_files = {
        row.path: (row.partition, row.size_bytes, row.mtime_ns)
        for row in connection.execute(select(files).where(files.c.table_name == name))
    }
    fragments: dict[str, tuple[int, ...]] = {}
    for placed in current_fragments(connection, name):
        fragments[placed.fragment.path] = (*fragments.get(placed.fragment.path, ()), placed.row)
    sizes = connection.execute(select(of.c.id, of.c.rows, of.c.size_bytes).where(of.c.table_name == name))
    return _Known(
        find_table(connection, name), known_files, fragments, {row.id: (row.rows, row.size_bytes) for row in sizes}
    )


def _is_known(file: StoredFile, known: _Known) -> bool:
    before = known.files.get(file.path)
    return before is not None and before[1:] == (file.size_bytes, file.mtime_ns)


def _checked_columns(
    warehouse: Warehouse,
    name: str,
    known: _Known,
    fresh: Iterable[StoredFile],
    time_column: str | None,
) -> tuple[ColumnSchema, ...]:
    """The table's columns: those it was registered with, or at first those of the first file; no file may differ."""
    columns = known.table.columns if known.table is not None else None
    for file in fresh:
        here = read_schema(warehouse.storage, file.path)
        columns = columns or here
        check_drift(columns, here, file.path, name)
    if not columns:
        raise DataError("the files of this table have no columns", where=name)
    if time_column is not None:
        stored = Table(name, "", columns, None, 0).column(time_column)
        if not stored.arrow_type.startswith(("timestamp", "int", "date")):
            raise TypeMismatch("the time column holds no time", where=f"table {name!r}, column {time_column}",
                               value=stored.arrow_type, allowed="a timestamp, a date or an integer")  # fmt: skip
    return columns


def _read_all(
    warehouse: Warehouse, fresh: list[StoredFile], progress: Progress | None
) -> dict[str, tuple[Fragment, ...]]:
    total_bytes = sum(file.size_bytes for file in fresh)
    done_bytes = 0
    read = {}
    config = warehouse.config
    for file in fresh:
        if progress:
            progress(done_bytes, total_bytes, file.path)
        read[file.path] = read_fragments(warehouse.storage, file.path, config.fragment_rows, config.read_threads)
        done_bytes += file.size_bytes
    if progress and fresh:
        progress(done_bytes, total_bytes, fresh[-1].path)
    return read


@dataclass(frozen=True)
class _Change:
    """The writing half: everything here is inside one transaction."""

    connection: Connection
    now: float
    name: str
    root: str
    columns: tuple[ColumnSchema, ...]
    time_column: str | None
    known: _Known
    found: Mapping[str, tuple[StoredFile, ...]]
    read: Mapping[str, tuple[Fragment, ...]]

    def apply(self) -> Registration:
        """Write what differs and say what did."""
        before: dict[str, set[str]] = {}
        for path, (partition, _, _) in self.known.files.items():
            before.setdefault(partition, set()).add(path)
        added = tuple(key for key in self.found if key not in before)
        removed = tuple(sorted(key for key in before if key not in self.found))
        changed = tuple(key for key in self.found if key in before and self._differs(key, before[key]))
        table = self._write_table(bool(added or changed or removed))
        placed = self._write_fragments()
        self._write_manifests(table, {key: self.found.get(key, ()) for key in (*added, *changed, *removed)}, placed)
        self._write_files()
        sizes = {**self.known.rows_bytes, **self._sizes(placed)}
        members = [row for files in self.found.values() for file in files for row in placed[file.path]]
        rows, size_bytes = (sum(sizes[row][i] for row in members) for i in (0, 1))
        unchanged = len(self.found) - len(added) - len(changed)
        return Registration(table, added, changed, removed, unchanged, rows, size_bytes)

    def _differs(self, key: str, paths_before: set[str]) -> bool:
        paths = {file.path for file in self.found[key]}
        return paths != paths_before or any(path in self.read for path in paths)

    def _write_table(self, differs: bool) -> Table:
        old = self.known.table
        table = Table(self.name, self.root, self.columns, self.time_column, (old.version if old else 0) + differs)
        values = {
            "root": table.root,
            "time_column": table.time_column,
            "columns": columns_document(table.columns),
            "version": table.version,
            "registered_at": self.now,
        }
        if old is None:
            self.connection.execute(insert(schema.tables).values(name=table.name, **values))
        else:
            self.connection.execute(update(schema.tables).where(schema.tables.c.name == table.name).values(**values))
        return table

    def _write_fragments(self) -> dict[str, tuple[int, ...]]:
        """Rows of ``fragments`` by path, of files that were read now and of files that stayed."""
        of = schema.fragments
        first = (self.connection.execute(select(func.max(of.c.id))).scalar() or 0) + 1
        placed = {path: rows for path, rows in self.known.fragments.items() if path not in self.read}
        rows: list[dict[str, object]] = []
        for path, fragments in self.read.items():
            placed[path] = tuple(range(first + len(rows), first + len(rows) + len(fragments)))
            rows += [_fragment_row(self.name, fragment) for fragment in fragments]
        for file in (file for files in self.found.values() for file in files):
            placed.setdefault(file.path, ())  # a file without rows
        if rows:
            self.connection.execute(insert(of), [{"id": first + i, **row} for i, row in enumerate(rows)])
        return placed

    def _sizes(self, placed: Mapping[str, tuple[int, ...]]) -> dict[int, tuple[int, int]]:
        return {
            row: (fragment.rows, fragment.size_bytes)
            for path, fragments in self.read.items()
            for row, fragment in zip(placed[path], fragments, strict=True)
        }

    def _write_manifests(
        self, table: Table, touched: Mapping[str, tuple[StoredFile, ...]], placed: Mapping[str, tuple[int, ...]]
    ) -> None:
        if not touched:
            return
        of = schema.manifests
        mine = of.c.table_name == self.name
        latest = {row.partition: row.version for row in self.connection.execute(
            select(of.c.partition, func.max(of.c.version).label("version")).where(mine).group_by(of.c.partition))}  # fmt: skip
        self.connection.execute(update(of).where(mine, of.c.partition.in_(list(touched))).values(current=False))
        first = (self.connection.execute(select(func.max(of.c.id))).scalar() or 0) + 1
        manifests, members = [], []
        for number, (key, files) in enumerate(touched.items(), first):
            start, end = partition_range(key)
            manifests.append({"id": number, "table_name": self.name, "partition": key,
                              "version": latest.get(key, 0) + 1, "table_version": table.version,
                              "start_at": start.timestamp(), "end_at": end.timestamp(), "current": True})  # fmt: skip
            fragments = [row for file in files for row in placed[file.path]]
            members += [{"manifest": number, "position": i, "fragment": row} for i, row in enumerate(fragments)]
        self.connection.execute(insert(of), manifests)
        if members:
            self.connection.execute(insert(schema.manifest_fragments), members)

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


def _fragment_row(table: str, fragment: Fragment) -> dict[str, object]:
    return {
        "fragment_id": fragment.fragment_id,
        "table_name": table,
        "path": fragment.path,
        "row_groups": list(fragment.row_groups),
        "rows": fragment.rows,
        "size_bytes": fragment.size_bytes,
        "digests": dict(fragment.digests),
    }
