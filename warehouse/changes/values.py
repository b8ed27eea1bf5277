"""The columns of a change: reading their files and casting them to the table's types."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from transforms.columns.arrays import one_array
from transforms.errors import DataError, InputError, TypeMismatch
from warehouse.files.digests import logical_type
from warehouse.storage.storage import Storage
from warehouse.tables.arrow_types import parse_arrow_type
from warehouse.tables.evolution.schema import DriftAdvice, merged_column
from warehouse.tables.hive_levels import is_side_file, parse_levels
from warehouse.tables.lake_folders import refuse_lakes
from warehouse.tables.parquet import OnInvalidText, check_columns, read_whole, refuse_invalid_text
from warehouse.tables.scan import relative_path
from warehouse.tables.table import ColumnSchema, Table
from warehouse.tables.widening import widest_type

_FAMILIES: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("bool", pat.is_boolean),
    ("integer", pat.is_integer),
    ("float", pat.is_floating),
    ("decimal", pat.is_decimal),
    ("text", lambda kind: pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind)),
    ("binary", lambda kind: pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_binary_view(kind)),
    ("timestamp", pat.is_timestamp),
    ("list", lambda kind: pat.is_list(kind) or pat.is_large_list(kind)),
)


@dataclass(frozen=True)
class GivenRows:
    """Rows that the caller read from a file of another format, ``name``."""

    name: str
    rows: pa.Table


#: A Parquet file or a folder of them, or the rows themselves.
Source = str | GivenRows


def source_name(source: Source) -> str:
    """The name of a source in errors and in the history."""
    return source if isinstance(source, str) else source.name


def read_values(storage: Storage, source: Source, on_invalid_text: OnInvalidText = refuse_invalid_text) -> pa.Table:
    """All rows of a source, whose files must have the same columns, each of types that have a widest one.

    Levels of folders are no columns. Raises what :func:`read_parts` raises, and :class:`TypeMismatch` for files of other columns.
    """
    parts = read_parts(storage, source, on_invalid_text, with_levels=False)
    first = parts[0].rows.schema
    for part in parts[1:]:
        if set(part.rows.schema.names) != set(first.names):
            raise _unequal(part.path, part.rows.schema, first)
    return joined_parts(parts)


@dataclass(frozen=True)
class SourcePart:
    """The rows of one file of a source."""

    path: str
    rows: pa.Table


def read_parts(
    storage: Storage,
    source: Source,
    on_invalid_text: OnInvalidText = refuse_invalid_text,
    *,
    with_levels: bool = True,
) -> list[SourcePart]:
    """The rows of a Parquet file, or of every Parquet file in a folder by name, without side files of writers.

    ``with_levels``: levels of folders (``country=DE``), below the folder or in the path as it is given, are columns of text; those
    that state the time of a partition are not. Raises :class:`InputError` for a missing path and a lake's files, :class:`DataError` for a folder without a file,
    :class:`~warehouse.errors.CorruptFile` and the errors of ``on_invalid_text``.
    """
    if isinstance(source, GivenRows):
        return [SourcePart(source.name, source.rows)]
    path, where = source, storage.absolute(source)
    refuse_lakes(storage, [where])
    if not storage.folder_exists(where):
        if not storage.exists(where):
            raise InputError("no such file or folder", where=path, value=where, next_step="check the path")
        rows = read_whole(storage, where, on_invalid_text)
        return [SourcePart(path, _with_levels(rows, path) if with_levels else rows)]
    listed = {file.path: relative_path(file.path, where) for file in storage.list(where)}
    found = {
        full: short for full, short in listed.items() if short.endswith((".parquet", ".pq")) and not is_side_file(short)
    }
    if not found:
        raise DataError("the folder has no Parquet file", where=path, allowed="*.parquet")
    read = {full: read_whole(storage, full, on_invalid_text) for full in found}
    return [
        SourcePart(full, _with_levels(read[full], short) if with_levels else read[full])
        for full, short in found.items()
    ]


def _with_levels(rows: pa.Table, path: str) -> pa.Table:
    """The rows of a file with the levels of its folders that it does not have itself."""
    for name, value in parse_levels(posixpath.dirname(path), path).columns.items():
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.array([value], pa.string()).take(pa.array(np.zeros(rows.num_rows, int))))
    return rows


def joined_parts(parts: Sequence[SourcePart]) -> pa.Table:
    """The rows of all parts, with the columns of any of them in their widest types; a column that a part lacks is null there.

    Raises :class:`TypeMismatch` for a column whose types have none.
    """
    kinds: dict[str, pa.DataType] = {}
    for part in parts:
        for field in part.rows.schema:
            known = kinds.setdefault(field.name, field.type)
            if known != field.type:
                wide = widest_type(plain_type(known), plain_type(field.type))
                if wide is None:
                    raise _unequal(part.path, pa.schema([field]), pa.schema([(field.name, known)]))
                kinds[field.name] = wide
    return pa.concat_tables([_cast_part(part, kinds) for part in parts])


def _cast_part(part: SourcePart, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    arrays = []
    for name, kind in kinds.items():
        if name not in part.rows.column_names:
            arrays.append(pa.nulls(part.rows.num_rows, kind))
            continue
        try:
            arrays.append(part.rows.column(name).cast(kind))
        except pa.ArrowException as error:
            raise TypeMismatch("a value must fit the column's widest type", where=f"{part.path}, column {name}",
                               value=str(error).splitlines()[0][:200], allowed=str(kind)) from error  # fmt: skip
    return pa.table(arrays, names=list(kinds))


def _unequal(path: str, found: pa.Schema, expected: pa.Schema) -> TypeMismatch:
    return TypeMismatch("the files of a change must have equal columns", where=path, value=_spelled(found),
                        allowed=_spelled(expected), next_step="write the files with equal columns")  # fmt: skip


def _spelled(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def plain_type(stored: pa.DataType) -> pa.DataType:
    """The type of the values; of a dictionary, its value type."""
    return stored.value_type if pat.is_dictionary(stored) else stored


def plain_column(column: pa.Array | pa.ChunkedArray, wanted: pa.DataType, where: str) -> pa.Array:
    """``column`` as one array of type ``wanted``.

    Raises :class:`TypeMismatch` if a value does not fit or has another kind: text is not read as numbers, nor numbers as
    booleans.
    """
    array = one_array(column)
    if pat.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == wanted:
        return array
    if not _same_kind(array.type, wanted):
        raise _mismatch(where, array.type, wanted)
    try:
        return array.cast(wanted)
    except pa.ArrowException as error:
        raise TypeMismatch("a value must fit the column's type", where=where, value=str(error).splitlines()[0][:200],
                           allowed=str(wanted)) from error  # fmt: skip


def _mismatch(where: str, found: pa.DataType, wanted: pa.DataType) -> TypeMismatch:
    return TypeMismatch("a column must have the table's type", where=where, value=str(found),
                        allowed=str(wanted), next_step="write the file with the table's type")  # fmt: skip


def _same_kind(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pat.is_null(found) or logical_type(found) == logical_type(wanted):
        return True
    families = {name for name, check in _FAMILIES if check(found)} & {
        name for name, check in _FAMILIES if check(wanted)
    }
    if not families:
        return bool(pat.is_integer(found) and pat.is_floating(wanted))
    if families == {"timestamp"}:
        return bool(found.tz == wanted.tz)
    return families != {"list"} or _same_kind(found.value_type, wanted.value_type)


def table_type(column: ColumnSchema, found: pa.DataType) -> pa.DataType:
    """The type of new values of a column: the table's, or ``found`` if no model can read the table's."""
    return plain_type(parse_arrow_type(column.arrow_type) or found)


def value_columns(table: Table, found: pa.Schema, keys: Sequence[str], chosen: Sequence[str], where: str) -> list[str]:
    """The columns of a change: the chosen ones, or all but the keys. Raises :class:`~transforms.errors.UnknownColumn`."""
    check_columns((*keys, *chosen), found.names, where)
    for key in keys:
        table.column(key)
    if both := sorted(set(keys) & set(chosen)):
        raise InputError("a key must not be a column to change", where=where, value=", ".join(both))
    columns = [name for name in found.names if name not in keys and (not chosen or name in chosen)]
    if not columns:
        raise InputError("the file must have a column other than its keys", where=where, value=", ".join(found.names))
    return columns


def columns_with(
    table: Table, columns: Sequence[str], values: pa.Table, where: str, advice: DriftAdvice
) -> tuple[ColumnSchema, ...]:
    """The table's columns once these columns of ``values`` are overlaid.

    A column that the table does not have is added with the type of its values. One whose values do not fit its type is widened
    to hold both. Raises :class:`~warehouse.errors.SchemaDrift` for values that differ in meaning, :class:`TypeMismatch` for a
    value that fits neither type, and for a type that no model can read.
    """
    after = {column.name: column for column in table.columns}
    for name in columns:
        column = values.column(name)
        after[name] = _column_with(after.get(name), name, column, where, advice)
    return tuple(after.values())


def _column_with(
    known: ColumnSchema | None, name: str, values: pa.ChunkedArray, path: str, advice: DriftAdvice
) -> ColumnSchema:
    kind, where = plain_type(values.type), f"{path}, column {name}"
    if known is None:
        if pat.is_null(kind) or parse_arrow_type(str(kind)) != kind:
            raise TypeMismatch("the type of a new column must be one that a model can read", where=where,
                               value=str(kind), allowed="bool, integers, floats, text, timestamps, lists of them")  # fmt: skip
        return ColumnSchema(name, str(kind), overlay_only=True)
    try:
        plain_column(values, table_type(known, kind), where)
    except TypeMismatch:
        wider = merged_column(known, ColumnSchema(name, str(kind), overlay_only=True))
        if wider is None and not _same_kind(kind, table_type(known, kind)):
            raise advice.conflict(known, str(kind), path) from None
        if wider is None or wider.arrow_type == known.arrow_type:
            raise
        plain_column(values, table_type(wider, kind), where)
        return wider
    return known


def parse_literal(text: str, column: ColumnSchema) -> Any:
    """``text`` as a value of a column: an Arrow scalar of its type. Raises :class:`InputError`."""
    kind = plain_type(parse_arrow_type(column.arrow_type) or pa.null())
    if pat.is_null(kind) or pat.is_nested(kind) or pat.is_binary(kind) or pat.is_large_binary(kind):
        raise InputError("the type of a column in --where must be comparable", where=f"column {column.name}",
                         value=column.arrow_type, allowed="bool, integers, floats, text, timestamps",
                         next_step="choose them by a key: --on KEY --keys FILE")  # fmt: skip
    if pat.is_boolean(kind) and text.lower() not in ("true", "false"):
        raise _not_a_value(text, column, "true or false")
    if pat.is_timestamp(kind):
        return _moment(text, kind, column)
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except pa.ArrowException as error:
        raise _not_a_value(text, column, column.arrow_type) from error


def _moment(text: str, kind: pa.DataType, column: ColumnSchema) -> Any:
    """The value of a time, in UTC unless it has a zone."""
    for spelled, read_as in ((text, kind), (text, pa.timestamp(kind.unit))):
        try:
            return pa.scalar(spelled, pa.string()).cast(read_as).cast(kind)
        except pa.ArrowException:
            continue
    raise _not_a_value(text, column, f"{column.arrow_type}: ISO 8601, such as 2026-03-02T18:00")


def _not_a_value(text: str, column: ColumnSchema, allowed: str) -> InputError:
    return InputError(
        "a value must have its column's type", where=f"--where, column {column.name}", value=text, allowed=allowed
    )
