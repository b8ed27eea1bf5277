"""Values of a change, joined to events by keys or aligned row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from transforms.errors import DataError, InputError, TypeMismatch
from warehouse.changes.keys import KeyIndex
from warehouse.changes.values import (
    Source,
    columns_with,
    plain_column,
    plain_type,
    read_values,
    source_name,
    table_type,
    value_columns,
)
from warehouse.storage.storage import Storage
from warehouse.tables.evolution.schema import DriftAdvice
from warehouse.tables.hive_levels import is_side_file
from warehouse.tables.lake_folders import refuse_lakes
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.parquet import read_whole, row_count
from warehouse.tables.raw import read_raw
from warehouse.tables.scan import relative_path
from warehouse.tables.table import ColumnSchema, Table
from warehouse.tables.widening import widest_type


@dataclass(frozen=True)
class FragmentValues:
    """Values for one fragment: event i gets row ``rows[i]`` of ``values``, or keeps its value if that is null."""

    rows: pa.Array
    values: pa.Table


class ValueSource(Protocol):
    """The values of a change, by fragment."""

    @property
    def where(self) -> str:
        """The file or folder."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the change, in the file's order."""
        ...

    @property
    def after(self) -> tuple[ColumnSchema, ...]:
        """The table's columns after the change: new ones, and those whose values need a wider type."""
        ...

    @property
    def unknown_keys(self) -> int:
        """Keys that no event had so far."""
        ...

    def values_for(self, placed: PlacedFragment) -> FragmentValues | None:
        """The values for a fragment; None if there are none."""
        ...


class EventKeys:
    """The keys of a file, looked up in fragments."""

    def __init__(self, storage: Storage, table: Table, values: pa.Table, on: Sequence[str], where: str) -> None:
        self._storage, self._where = storage, where
        self._types = {name: table_type(table.column(name), values.column(name).type) for name in on}
        for name, kind in self._types.items():
            if pat.is_nested(kind) or pat.is_null(kind):
                raise TypeMismatch(
                    "a key must be a number, a text or a time", where=f"{where}, column {name}", value=str(kind)
                )
        self._index = KeyIndex(self._columns(values, where), where)

    @property
    def unmatched(self) -> int:
        """Keys that no fragment had so far."""
        return self._index.unmatched

    def find(self, placed: PlacedFragment) -> pa.Array:
        """The row in the file for every event of a fragment; null if there is none."""
        raw = read_raw(self._storage, placed.fragment, list(self._types))
        return self._index.find(self._columns(raw, placed.fragment.path))

    def _columns(self, table: pa.Table, where: str) -> dict[str, pa.Array]:
        return {
            name: plain_column(table.column(name), kind, f"{where}, column {name}")
            for name, kind in self._types.items()
        }


@dataclass(frozen=True)
class KeyedValues:
    """Values of a file, joined to events by key columns."""

    where: str
    columns: tuple[str, ...]
    after: tuple[ColumnSchema, ...]
    values: pa.Table
    keys: EventKeys

    @classmethod
    def read(
        cls,
        storage: Storage,
        table: Table,
        source: Source,
        on: Sequence[str],
        chosen: Sequence[str],
        advice: DriftAdvice,
    ) -> KeyedValues:
        """Read and check the whole file. Errors as for :func:`warehouse.changes.overlay.overlay_columns`."""
        values, path = read_values(storage, source), source_name(source)
        columns = value_columns(table, values.schema, on, chosen, path)
        after = columns_with(table, columns, values, path, advice)
        return cls(path, tuple(columns), after, values.select(columns), EventKeys(storage, table, values, on, path))

    @property
    def unknown_keys(self) -> int:
        """Keys that no fragment had so far."""
        return self.keys.unmatched

    def values_for(self, placed: PlacedFragment) -> FragmentValues | None:
        """The rows with the keys of the fragment's events."""
        rows = self.keys.find(placed)
        return FragmentValues(rows, self.values) if rows.null_count < len(rows) else None


@dataclass(frozen=True)
class AlignedValues:
    """Values of a folder that mirrors the table's files: row i of a file belongs to event i of the mirrored file."""

    where: str
    columns: tuple[str, ...]
    after: tuple[ColumnSchema, ...]
    storage: Storage
    mirrors: Mapping[str, str]  # the table's file -> the file that mirrors it
    first_rows: Mapping[int, int]  # a fragment's row in the catalog -> its first row in its file
    unknown_keys: int = 0

    @classmethod
    def read(
        cls,
        storage: Storage,
        table: Table,
        folder: str,
        chosen: Sequence[str],
        current: Sequence[PlacedFragment],
        advice: DriftAdvice,
    ) -> AlignedValues:
        """Check name, columns and rows of every file before any is used."""
        first_rows, counts = _layout(current)
        mirrors = _mirrors(storage, table, folder, counts)
        columns: list[str] = []
        added: dict[str, pa.DataType] = {}
        after = table.columns
        for path, mirror in mirrors.items():
            if (found := row_count(storage, mirror)) != counts[path]:
                raise DataError("a file must have the rows of the file that it mirrors", where=mirror, value=found,
                                allowed=f"{counts[path]}, as {path}", next_step="or join by a key: --on KEY")  # fmt: skip
            values = read_whole(storage, mirror)
            here = value_columns(table, values.schema, (), chosen, mirror)
            if columns and here != columns:
                raise TypeMismatch("the files of a change must have equal columns", where=mirror,
                                   value=", ".join(here), allowed=", ".join(columns))  # fmt: skip
            columns = here
            _check_new_types(added, table, columns, values, mirror)
            after = columns_with(replace(table, columns=after), columns, values, mirror, advice)
        return cls(folder, tuple(columns), after, storage, mirrors, first_rows)

    def values_for(self, placed: PlacedFragment) -> FragmentValues | None:
        """The rows at the fragment's position in its file."""
        mirror = self.mirrors.get(placed.fragment.path)
        if mirror is None:
            return None
        values = read_whole(self.storage, mirror).select(list(self.columns))
        part = values.slice(self.first_rows[placed.row], placed.fragment.rows)
        return FragmentValues(pa.array(np.arange(placed.fragment.rows)), part)


def _check_new_types(
    added: dict[str, pa.DataType], table: Table, columns: Sequence[str], values: pa.Table, where: str
) -> None:
    """Raise :class:`TypeMismatch` unless the types of new columns have a widest one; ``added`` are those so far."""
    known = {column.name for column in table.columns}
    for name in columns:
        found = plain_type(values.column(name).type)
        wide = None if name in known else widest_type(added.get(name, found), found)
        if name not in known and wide is None:
            raise TypeMismatch("the files of a change must have equal columns", where=f"{where}, column {name}",
                               value=str(found), allowed=str(added[name]))  # fmt: skip
        if wide is not None:
            added[name] = wide


def _layout(current: Sequence[PlacedFragment]) -> tuple[dict[int, int], dict[str, int]]:
    """The first row of each fragment in its file, and each file's rows."""
    first_rows: dict[int, int] = {}
    counts: dict[str, int] = {}
    for placed in sorted(current, key=lambda one: (one.fragment.path, one.fragment.row_groups)):
        path = placed.fragment.path
        first_rows[placed.row] = counts.get(path, 0)
        counts[path] = counts.get(path, 0) + placed.fragment.rows
    return first_rows, counts


def _mirrors(storage: Storage, table: Table, folder: str, counts: Mapping[str, int]) -> dict[str, str]:
    root, here = table.root.rstrip("/"), storage.absolute(folder).rstrip("/")
    if not storage.folder_exists(here):
        step = "join a single file by a key: --on KEY" if storage.exists(here) else "check the path"
        raise InputError("the folder of values does not exist", where=folder, value=here, next_step=step)
    refuse_lakes(storage, [here])
    found = {}
    for file in storage.list(here):
        relative = relative_path(file.path, here)
        if not relative.endswith((".parquet", ".pq")) or is_side_file(relative):
            continue
        path = f"{root}/{relative}"
        if path not in counts:
            raise DataError("a file of values must have the path of a file of the table", where=f"{folder}, table {table.name}", value=relative,
                            allowed="<partition>/<name of the table's file>",
                            next_step=f"headrace table show {table.name} lists the partitions")  # fmt: skip
        found[path] = file.path
    if not found:
        raise DataError("the folder has no Parquet file", where=folder, allowed="<partition>/<name of the table's file>",
                        next_step=f"headrace table show {table.name} lists the partitions")  # fmt: skip
    return found
