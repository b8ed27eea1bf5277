"""Parquet files of any layout as a log, which an import writes into partitions by event time.

Columns keep their types; only the time column is converted to microseconds in UTC. A column that files hold in several types has
the widest of them, and is null for files without it. Levels of folders are columns of text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import pyarrow as pa

from pipelines.log_schemas.schema import LogTime, PartitionBy
from pipelines.outputs.partitions import suited_partitions
from pipelines.parsing.folder_columns import unread_levels, with_levels
from pipelines.parsing.rejects import Reject
from pipelines.parsing.sources import Levels
from pipelines.parsing.typed_rows import MISSING, ParsedBlock
from transforms.arrays import Bools, Ints
from transforms.columns.arrow_types import ARROW_ELEMENT
from transforms.errors import InputError, TypeMismatch, UnknownColumn, nearest
from transforms.graphs.encoding import digest
from transforms.types import DType
from warehouse.storage.storage import Storage
from warehouse.tables.evolution.refusals import NewFile, refuse_missing_time
from warehouse.tables.evolution.schema import DriftAdvice, SchemaMerge
from warehouse.tables.evolution.schema import with_levels as columns_with_levels
from warehouse.tables.overflow import check_overflow
from warehouse.tables.parquet import invalid_text_rule, read_arrow_schema, read_schema, row_batches
from warehouse.tables.stored_types import parse_stored_type
from warehouse.tables.table import NULL, ColumnSchema
from warehouse.tables.widening import may_overflow

EpochUnit = Literal["s", "ms", "us", "ns"]
OUT_OF_RANGE = "a time is out of range"

_TIME = ARROW_ELEMENT[DType.TIMESTAMP]
_BATCH_ROWS = 131_072
#: The factor and the divisor that convert a number of each unit to microseconds.
_MICROSECONDS = {"day": (86_400_000_000, 1), "s": (10**6, 1), "ms": (10**3, 1), "us": (1, 1), "ns": (1, 10**3)}
_LAST_US = 7_258_118_400_000_000
_CENTURIES_US = (0, _LAST_US)  # 1970 to 2199: other times are ignored for a log's span
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STORAGE = Storage("/")
_NO_LEVELS: Mapping[str, Levels] = {}


@dataclass(frozen=True)
class ParquetLog:
    """Parquet files, from :func:`parquet_log`.

    Attributes:
        arrow_schema: the schema of the imported table: that of all files, with the time column as microseconds in UTC.
        unit: the unit of a time column of integers, else None.
        invalid_text: ``refuse`` a file whose text is not UTF-8, or ``replace`` invalid bytes by U+FFFD.
        column_files: the first file with the type that a column has in the schema, by column.
    """

    arrow_schema: pa.Schema
    time: LogTime
    partition_by: PartitionBy
    unit: EpochUnit | None
    invalid_text: str = "refuse"
    column_files: Mapping[str, str] = field(default_factory=dict, compare=False)

    def bounded(self, now: datetime) -> ParquetLog:
        """The same log with the range of plausible event times of an import at ``now``."""
        return replace(self, time=self.time.bounded(now))

    def digest(self) -> str:
        """SHA-256 of the fields, as 64 hexadecimal digits; equal logs read files alike."""
        columns = [[field.name, str(field.type)] for field in self.arrow_schema]
        return digest(["parquet", columns, self.time.column, self.unit, self.partition_by, self.invalid_text])

    def blocks(self, path: str, levels: Levels = ()) -> Iterator[ParsedBlock]:
        """The rows of one file, in order, at most 131,072 at a time; rows without a plausible time are rejects.

        ``levels``: those of the file's folders; a column of the file goes before. Raises :class:`~warehouse.errors.CorruptFile`,
        :class:`~warehouse.errors.SchemaDrift` for a time beyond nanoseconds in a column of them, and for invalid text the error
        of the rule.
        """
        first_row = 1
        for rows in row_batches(_STORAGE, path, _BATCH_ROWS, invalid_text_rule(self.invalid_text, [])):
            yield self._block(rows, first_row, path, dict(levels))
            first_row += rows.num_rows

    def _block(self, rows: pa.Table, first_row: int, path: str, levels: Mapping[str, str | None]) -> ParsedBlock:
        notes = unread_levels(rows, levels)
        at = rows.schema.get_field_index(self.time.column)
        stored = rows.column(at).combine_chunks()
        if pa.types.is_null(stored.type):  # a file without any time
            stored = stored.cast(_TIME if self.unit is None else pa.int64())
        times, missing, outside = event_times(stored, self.unit, self.time.bounded_range_us)
        rejects = tuple(
            self._reject(rows, row, first_row, MISSING if missing[row] else OUT_OF_RANGE)
            for row in np.flatnonzero(missing | outside).tolist()
        )
        table = rows.set_column(at, pa.field(self.time.column, _TIME), pa.array(times, pa.int64()).cast(_TIME))
        table = self._as_table(table, path, levels)
        if rejects:
            table = table.filter(pa.array(~(missing | outside)))
        return ParsedBlock(table, rejects, notes)

    def _as_table(self, rows: pa.Table, path: str, levels: Mapping[str, str | None]) -> pa.Table:
        """Rows of a file with the columns of all files."""
        rows = with_levels(rows, levels)
        check_overflow(
            rows, {name: self.arrow_schema.field(name).type for name in self._overflowing}, path, "this import"
        )
        for wanted in self.arrow_schema:
            if wanted.name not in rows.column_names:
                rows = rows.append_column(wanted, pa.nulls(rows.num_rows, wanted.type))
        return rows.select(self.arrow_schema.names).cast(self.arrow_schema)

    @property
    def _overflowing(self) -> list[str]:
        return [field.name for field in self.arrow_schema if may_overflow("", str(field.type))]

    def _reject(self, rows: pa.Table, row: int, first_row: int, what: str) -> Reject:
        values = {name: _spelled(rows.column(name), row) for name in rows.column_names}
        raw = json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace")
        first, last = (_spelled_us(bound) for bound in self.time.bounded_range_us)
        expected = f"a time from {first} until {last}"
        return Reject(first_row + row, what, raw, self.time.column, values[self.time.column], expected)


def parquet_log(
    paths: Sequence[str],
    time_column: str = "",
    *,
    unit: EpochUnit | None = None,
    partition_by: PartitionBy | None = None,
    invalid_text: str = "refuse",
    levels: Mapping[str, Levels] = _NO_LEVELS,
) -> ParquetLog:
    """The log in the Parquet files at ``paths``, with the columns of all of them and of the ``levels`` of their folders, by path.

    ``time_column`` defaults to the only column of timestamps, ``partition_by`` to
    :func:`~pipelines.outputs.partitions.suited_partitions`.

    Raises :class:`~warehouse.errors.CorruptFile` for a file that is not Parquet, :class:`~warehouse.errors.SchemaDrift`
    for a column that differs in meaning, or a file without the time column, :class:`UnknownColumn` or :class:`TypeMismatch` for a
    missing time column or one without times, and :class:`InputError` for integers without a ``unit``, or a unit for a type that
    has its own.
    """
    columns = {path: read_schema(_STORAGE, path) for path in paths}
    time_column = time_column or _only_time(columns)
    schema, column_files = _merged_schema(_with_one_time_type(columns, time_column), levels)
    where = f"{paths[0]}, column {time_column}"
    if time_column not in schema.names:
        raise UnknownColumn("the time column must be one of the file's", where=paths[0], value=time_column,
                            allowed=nearest(time_column, schema.names),
                            next_step="name it with --time-column")  # fmt: skip
    files = (NewFile(path, "", frozenset(column.name for column in found)) for path, found in columns.items())
    refuse_missing_time("this import", time_column, files)
    _check_time_type(schema.field(time_column).type, unit, where)
    fields = [pa.field(field.name, _TIME if field.name == time_column else field.type) for field in schema]
    log = ParquetLog(
        pa.schema(fields), LogTime(time_column, "us"), partition_by or "hour", unit, invalid_text, column_files
    )
    return log if partition_by else replace(log, partition_by=_partitioning(log, paths))


def _merged_schema(
    columns: Mapping[str, tuple[ColumnSchema, ...]], levels: Mapping[str, Levels]
) -> tuple[pa.Schema, dict[str, str]]:
    """The columns of all files, by path, in their widest types, and the levels of their folders; and the file of each."""
    merge = SchemaMerge((), DriftAdvice("this import", "NAME", "import", lambda column: ()))
    first: dict[str, str] = {}  # the first file with a column of a type
    files: dict[str, str] = {}
    for path, found in columns.items():
        merge.add(columns_with_levels(found, (name for name, _ in levels.get(path, ()))), path)
        for column in found:
            first.setdefault(f"{column.name} {column.arrow_type}", path)
            if column.arrow_type != NULL:
                files.setdefault(column.name, path)
    fields = []
    for column in merge.columns:
        kind = parse_stored_type(column.arrow_type)
        if kind is None:  # the text does not state the type, so it is that of a file
            path = first[f"{column.name} {column.arrow_type}"]
            kind = read_arrow_schema(_STORAGE, path).field(column.name).type
        fields.append(pa.field(column.name, kind))
    return pa.schema(fields), {**files, **merge.widened_by}


def _with_one_time_type(
    columns: Mapping[str, tuple[ColumnSchema, ...]], time_column: str
) -> dict[str, tuple[ColumnSchema, ...]]:
    """The columns of all files, by path; times of events in several types are in the one that an import writes.

    An import reads times without a zone as UTC, so they do not differ in meaning from those with one, as other columns do.
    """
    kinds = {one.arrow_type for found in columns.values() for one in found if one.name == time_column}
    if len(kinds) == 1:
        return dict(columns)
    return {
        path: tuple(
            replace(one, arrow_type=str(_TIME))
            if one.name == time_column and one.arrow_type.startswith(("timestamp", "date"))
            else one
            for one in found
        )
        for path, found in columns.items()
    }


def _only_time(columns: Mapping[str, tuple[ColumnSchema, ...]]) -> str:
    """The only column that holds timestamps in any file."""
    every = [one for found in columns.values() for one in found]
    names = dict.fromkeys(one.name for one in every)
    found = [*dict.fromkeys(one.name for one in every if one.arrow_type.startswith("timestamp"))]
    if len(found) != 1:
        raise InputError("an import must have one column of event times", where=next(iter(columns)),
                         value=f"columns of timestamps: {', '.join(found) or 'none'}", allowed=", ".join(names)[:300],
                         next_step="name it with --time-column; files without times, in folders of days, are registered "
                         "in place: headrace table add NAME FOLDER")  # fmt: skip
    return found[0]


def _partitioning(log: ParquetLog, paths: Sequence[str]) -> PartitionBy:
    """The default partitioning by the span of plausible times; days for a long span, which avoids small files."""
    name, first, last, rows_with_time = log.time.column, _LAST_US, 0, 0
    for path in paths:
        for rows in row_batches(_STORAGE, path, _BATCH_ROWS, invalid_text_rule(log.invalid_text, []), [name]):
            stored = rows.column(name).combine_chunks()
            if pa.types.is_null(stored.type):
                continue
            times, missing, outside = event_times(stored, log.unit, _CENTURIES_US)
            known = times[~(missing | outside)]
            if len(known):
                first, last = min(int(known.min()), first), max(int(known.max()), last)
                rows_with_time += len(known)
    return suited_partitions(timedelta(microseconds=max(last - first, 0)), rows_with_time)


def _check_time_type(stored: pa.DataType, unit: EpochUnit | None, where: str) -> None:
    whole = pa.types.is_integer(stored)
    if not whole and not pa.types.is_timestamp(stored) and not pa.types.is_date(stored):
        raise TypeMismatch("a time column must hold timestamps, dates or integers", where=where, value=str(stored),
                           allowed="timestamp, date32, date64, or an integer with --time-unit",
                           next_step="store it as a timestamp: table[COLUMN].cast(pa.timestamp('us'))")  # fmt: skip
    if whole and unit is None:
        raise InputError("a time column of integers must have a unit", where=where, value=str(stored),
                         allowed="s, ms, us, ns", next_step="give its unit since 1970, such as --time-unit ms")  # fmt: skip
    if unit is not None and not whole:
        raise InputError("a unit must be given for a time column of integers only", where=where, value=str(stored),
                         next_step="leave --time-unit out")  # fmt: skip


def event_times(stored: pa.Array, unit: EpochUnit | None, range_us: tuple[int, int]) -> tuple[Ints, Bools, Bools]:
    """Microseconds since 1970, rounded down; which are missing; and which lie outside of a range, end excluded.

    The first array is 0 where either flag is set. Timestamps without a zone are UTC.
    """
    missing = np.asarray(stored.is_null())
    counted = _counted(stored)
    multiply, divide = _MICROSECONDS["day" if pa.types.is_date32(stored.type) else unit or _unit_of(stored.type)]
    counts = np.asarray(counted.fill_null(0)).copy()
    first, last = (-(-bound * divide // multiply) for bound in range_us)
    outside = ((counts < first) | (counts >= last)) & ~missing
    counts[outside | missing] = 0
    return counts * multiply // divide, missing, outside


def _spelled_us(time_us: int) -> str:
    return f"{_EPOCH + timedelta(microseconds=time_us):%Y-%m-%dT%H:%MZ}"


def _counted(stored: pa.Array) -> pa.Array:
    """The stored integers of times as int64; uint64 numbers that do not fit are negative."""
    if pa.types.is_date32(stored.type):
        return stored.cast(pa.int32()).cast(pa.int64())
    return stored.cast(pa.int64(), safe=False)


def _unit_of(stored: pa.DataType) -> str:
    return "ms" if pa.types.is_date64(stored) else str(stored.unit)


def _spelled(column: pa.ChunkedArray, row: int) -> str | None:
    """The text of a value for a reject file; Arrow's cast, since Python's times have a smaller range."""
    value = column[row]
    if not value.is_valid:
        return None
    try:
        return str(value)
    except (ValueError, OverflowError, pa.ArrowException):
        return str(value.cast(pa.int32() if pa.types.is_date32(value.type) else pa.int64()))
