"""Values that do not fit the widest type of their column: nanoseconds since 1970 reach from 1677 to 2262 only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from warehouse.errors import SchemaDrift
from warehouse.storage.storage import Storage
from warehouse.tables.evolution.evolved import EvolvedSchema
from warehouse.tables.raw import read_raw
from warehouse.tables.stored_types import parse_stored_type
from warehouse.tables.table import ColumnSchema, Fragment
from warehouse.tables.widening import may_overflow


def overflowing_types(columns: Iterable[ColumnSchema]) -> dict[str, pa.DataType]:
    """The types that a stored value may not fit, by column."""
    found = {}
    for column in columns:
        kind = parse_stored_type(column.arrow_type)
        if kind is not None and any(may_overflow(stored, column.arrow_type) for stored in column.stored_types):
            found[column.name] = kind
    return found


def check_overflow(rows: pa.Table, types: Mapping[str, pa.DataType], path: str, subject: str) -> None:
    """Raise :class:`SchemaDrift` for a value of these rows of a file that does not fit the type of its column.

    ``subject``: what the file belongs to, such as ``table 'clicks'``.
    """
    for name, kind in types.items():
        if name in rows.column_names:
            try:
                rows.column(name).cast(kind)
            except pa.ArrowException as error:
                raise _overflow(subject, name, kind, path, str(error).splitlines()[0][:200]) from error


def refuse_overflow(storage: Storage, evolved: EvolvedSchema, fragments: Iterable[Fragment]) -> None:
    """Raise :class:`SchemaDrift` if a value of the table's ``fragments`` does not fit a type that new files widen.

    Reads such a column of all of them, once in the life of a table: when its first nanoseconds arrive.
    """
    types = overflowing_types(column for column in evolved.columns if column.name in evolved.widened_by)
    for fragment in fragments if types else ():
        held = [name for name in types if name in fragment.digests]
        check_overflow(read_raw(storage, fragment, held), types, fragment.path, f"table {evolved.table!r}")


def _overflow(subject: str, column: str, kind: Any, path: str, value: str) -> SchemaDrift:
    return SchemaDrift(f"times of {subject} must fit its finest unit, nanoseconds", where=f"{path}, column {column}",
                       value=value, allowed=f"1677-09-21 to 2262-04-11, as {kind}",
                       next_step="write the new files in microseconds; or write null for a time that is not known")  # fmt: skip
