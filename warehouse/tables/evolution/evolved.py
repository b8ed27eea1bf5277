"""The schema that new files make of a table's, with the checks that live models can read them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from warehouse.catalog.catalog import Catalog
from warehouse.tables.evolution.live_readers import ColumnReader, column_readers
from warehouse.tables.evolution.refusals import (
    HeldColumns,
    NewFile,
    refuse_missing_time,
    refuse_removed,
    refuse_wider,
    removed_column,
)
from warehouse.tables.evolution.schema import NO_PATHS, Command, DriftAdvice, SchemaMerge
from warehouse.tables.evolution.schema_changes import SchemaChange, schema_changes
from warehouse.tables.table import ColumnSchema, Fragment, Table


@dataclass(frozen=True)
class EvolvedSchema:
    """The columns of a table with those of new files.

    Attributes:
        table: the name of the table.
        command: the command that brings the files.
        before: the columns of the table; empty for a new one.
        columns: the columns after the change.
        widened_by: the first file that widened a column, by column.
        files: the new files.
        held: the columns that the table's partitions have.
    """

    table: str
    command: Command
    before: tuple[ColumnSchema, ...]
    columns: tuple[ColumnSchema, ...]
    widened_by: Mapping[str, str]
    files: tuple[NewFile, ...]
    held: HeldColumns

    @property
    def changes(self) -> tuple[SchemaChange, ...]:
        """New and widened columns; of a new table those that its files hold in several types."""
        if self.before:
            return schema_changes(self.before, self.columns)
        return tuple(
            SchemaChange(column.name, column.stored_types[0], column.arrow_type)
            for column in self.columns
            if column.stored_types and column.stored_types[0] != column.arrow_type
        )

    @property
    def lacking(self) -> tuple[str, ...]:
        """The columns that some new file does not have, which are null there."""
        lacking = _lacking(self.columns, self.files)
        return tuple(column.name for column in self.columns if column.name in lacking)

    def check(self, connection: Connection) -> None:
        """Raise :class:`~warehouse.errors.SchemaDrift` if a live model could not read the new files."""
        lacking = _lacking(self.before, self.files)
        readers = column_readers(connection, self.table, lacking | self.widened_by.keys())
        refuse_wider(self.table, readers, self.columns, self.widened_by)
        refuse_removed(
            self.table, self.command, (one for one in readers if one.column in lacking), self.files, self.held
        )


def _lacking(columns: Iterable[ColumnSchema], files: Iterable[NewFile]) -> set[str]:
    """The columns of a table's files that some new file does not have."""
    expected = {column.name for column in columns if not column.overlay_only}
    return {name for found in {file.columns for file in files} for name in expected - found}


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The columns of a new file, with the levels of its folders.

    ``paths``: of the merged columns of several files, the file that a column is from, where it is not ``path``.
    """

    path: str
    partition: str
    columns: tuple[ColumnSchema, ...]
    paths: Mapping[str, str] = field(default_factory=dict)


def evolved_schema(
    catalog: Catalog,
    table: Table | None,
    name: str,
    command: Command,
    files: Sequence[FileSchema],
    time_column: str | None,
    fragments: Sequence[tuple[str, Fragment]] = (),
) -> EvolvedSchema:
    """The schema of table ``name`` with ``files``; ``fragments``: those of the table, each with its partition.

    Raises :class:`~warehouse.errors.SchemaDrift` for a column that differs in meaning, a file without the time column, and what
    :meth:`EvolvedSchema.check` raises.
    """
    before = () if table is None else table.columns
    merge = SchemaMerge(before, DriftAdvice.of_table(name, command, models_reading(catalog, name)))
    for file in files:
        merge.add(file.columns, file.path, file.paths)
    sets: dict[int, frozenset[str]] = {}  # by the identity of a schema, which many files share
    new = []
    for file in files:
        if id(file.columns) not in sets:
            sets[id(file.columns)] = frozenset(column.name for column in file.columns)
        new.append(NewFile(file.path, file.partition, sets[id(file.columns)]))
    if any(column.name == time_column for column in merge.columns):
        refuse_missing_time(f"table {name!r}", time_column, new)
    found = EvolvedSchema(name, command, before, merge.columns, merge.widened_by, tuple(new), HeldColumns(fragments))
    catalog.query(found.check)
    return found


def check_log_schema(
    catalog: Catalog,
    table: Table,
    columns: Sequence[ColumnSchema],
    where: str,
    time_column: str | None,
    paths: Mapping[str, str] = NO_PATHS,
) -> None:
    """Raise :class:`~warehouse.errors.SchemaDrift` unless an import with these columns can extend ``table``.

    The partitions are not known yet, so all columns that live models read must be there. ``where``: the source of the columns;
    ``paths``: the file that a column is from, where it is known.
    """
    evolved_schema(catalog, table, table.name, "import", [FileSchema(where, "", tuple(columns), paths)], time_column)
    here = {column.name for column in columns}
    lacking = {column.name for column in table.file_columns} - here
    readers = catalog.query(lambda connection: column_readers(connection, table.name, lacking))
    for column in sorted({reader.column for reader in readers}):
        models = {reader.model for reader in readers if reader.column == column}
        raise removed_column(table.name, "import", column, models, where)


def models_reading(catalog: Catalog, table: str) -> Callable[[str], Collection[str]]:
    """Names the live models over a table that read a column."""

    def models(column: str) -> set[str]:
        found: tuple[ColumnReader, ...] = catalog.query(lambda connection: column_readers(connection, table, [column]))
        return {reader.model for reader in found}

    return models
