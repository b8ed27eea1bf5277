"""Refusals of files that live models could not read: columns that they lack, and types wider than a model declares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from transforms.columns.columns import is_castable
from transforms.types import ColumnType
from warehouse.errors import SchemaDrift
from warehouse.tables.arrow_types import parse_arrow_type
from warehouse.tables.evolution.live_readers import ColumnReader
from warehouse.tables.evolution.schema import Command
from warehouse.tables.partitions import partition_range
from warehouse.tables.table import ColumnSchema, Fragment


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a command brings: its path, its partition, and the names of its columns."""

    path: str
    partition: str
    columns: frozenset[str]


@dataclass(frozen=True)
class HeldColumns:
    """Which partitions have values of a column in their files, by the fragments of a table.

    Attributes:
        fragments: the partition and the fragment of each.
    """

    fragments: Sequence[tuple[str, Fragment]]
    _found: dict[str, tuple[frozenset[str], datetime | None]] = field(default_factory=dict)

    @cached_property
    def partitions(self) -> frozenset[str]:
        """The partitions of the table."""
        return frozenset(partition for partition, _ in self.fragments)

    def must_have(self, partition: str, column: str) -> bool:
        """Whether a new file of a partition without the column would end it.

        True in a partition all of whose files have it, and in a new partition after the first one that has it.
        """
        whole, first = self._places(column)
        if partition in self.partitions:
            return partition in whole
        return first is not None and first <= partition_range(partition)[0]

    def _places(self, column: str) -> tuple[frozenset[str], datetime | None]:
        """The partitions all of whose files have values of a column, and the start of the first with any."""
        if column not in self._found:
            having: defaultdict[str, list[bool]] = defaultdict(list)
            for partition, fragment in self.fragments:
                laid_over = any(overlay.column == column for overlay in fragment.overlays)
                having[partition].append(column in fragment.digests and not laid_over)
            starts = [partition_range(partition)[0] for partition, found in having.items() if any(found)]
            whole = frozenset(partition for partition, found in having.items() if all(found))
            self._found[column] = whole, min(starts, default=None)
        return self._found[column]


def refuse_missing_time(subject: str, time_column: str | None, files: Iterable[NewFile]) -> None:
    """Raise :class:`SchemaDrift` for the first file of ``subject`` without the time column."""
    for file in files:
        if time_column is not None and time_column not in file.columns:
            raise SchemaDrift(f"a file of {subject} lacks the time column", where=f"{file.path}, column {time_column}",
                              value="absent", allowed=", ".join(sorted(file.columns))[:300],
                              next_step="write the file with the times of its events")  # fmt: skip


def refuse_removed(
    table: str, command: Command, readers: Iterable[ColumnReader], files: Iterable[NewFile], held: HeldColumns
) -> None:
    """Raise :class:`SchemaDrift` for the first file that lacks a column which a live model reads, and which it must have."""
    models = _models_by_column(readers)
    for file in files:
        for column in sorted(models.keys() - file.columns):
            if held.must_have(file.partition, column):
                raise removed_column(table, command, column, models[column], file.path)


def removed_column(table: str, command: Command, column: str, models: Collection[str], path: str) -> SchemaDrift:
    """The error of a file that lacks a column which these live models read."""
    named = ", ".join(sorted(models))
    write = (
        "declare the column in the schema file, or write it"
        if command == "import"
        else "write the file with the column"
    )
    return SchemaDrift(f"a file of table {table!r} lacks a column that live models read: {named}",
                       where=f"{path}, column {column}", value="absent", allowed=f"{column}, also with nulls alone",
                       next_step=f"{write}, with nulls where it has no values; or submit the models without it, "
                       f"or retire them: headrace model retire {min(models)}")  # fmt: skip


def refuse_wider(
    table: str, readers: Iterable[ColumnReader], columns: Iterable[ColumnSchema], widened_by: Mapping[str, str]
) -> None:
    """Raise :class:`SchemaDrift` for a column whose widened type a live model's declaration does not read."""
    types = {column.name: column.arrow_type for column in columns}
    for reader in readers:
        if reader.column not in widened_by:
            continue
        stored = parse_arrow_type(types[reader.column])
        if stored is None or not any(is_castable(stored, kind) for kind in reader.kinds):
            raise _too_wide(table, reader, types[reader.column], widened_by[reader.column])


def _too_wide(table: str, reader: ColumnReader, found: str, path: str) -> SchemaDrift:
    declared = _declared(reader.kinds)
    return SchemaDrift(f"a file of table {table!r} holds a column in a wider type than live model {reader.model} declares",
                       where=f"{path}, column {reader.column}", value=found, allowed=declared,
                       next_step=f"declare the wider type in the model and submit it, which reads the files so far too; "
                       f"or retire it: headrace model retire {reader.model}; or write the column as {declared}")  # fmt: skip


def _declared(kinds: Sequence[ColumnType]) -> str:
    return " or ".join(str(kind) for kind in kinds)


def _models_by_column(readers: Iterable[ColumnReader]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for reader in readers:
        found[reader.column].add(reader.model)
    return dict(found)
