"""What a raw log looks like: the schema file that ``headrace table import`` reads.

A schema is a JSON document::

    {"format": "tsv",                       tsv, csv or jsonl; a file name that ends in .gz is gunzipped
     "header": false,                       tsv and csv: the first line names the columns (unlisted ones are skipped)
     "null": ["", "NULL"],                  spellings of a missing value; default [""]
     "columns": [{"name": "user_id", "type": "int64", "required": true},
                 {"name": "genres", "type": "string", "separator": "|"},
                 {"name": "time", "type": "timestamp"}],
     "time": {"column": "time", "unit": "ms"},
     "partition_by": "hour"}                hour (the default) or day

Types are those of :class:`transforms.types.DType`. ``separator`` makes a list column. A timestamp that is not the
event time names its own ``unit``: s, ms, us or iso8601; a time without an offset is UTC. In tsv and csv a row is a line:
a quoted csv value may hold commas and doubled quotes, but no line break.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

import pyarrow as pa

from pipelines.errors import LogSchemaError
from transforms.encoding import digest
from transforms.types import ColumnType, Dense, DType, Ragged, arrow_type

LogFormat = Literal["tsv", "csv", "jsonl"]
TimeUnit = Literal["s", "ms", "us", "iso8601"]
PartitionBy = Literal["hour", "day"]

_SCHEMA_KEYS = ("format", "header", "null", "columns", "time", "partition_by")
_COLUMN_KEYS = ("name", "type", "separator", "required", "unit")
_TIME_KEYS = ("column", "unit")
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class LogColumn:
    """One column: ``separator`` splits a cell into a list; ``unit`` is set exactly for timestamps."""

    name: str
    dtype: DType
    separator: str | None = None
    required: bool = False
    unit: TimeUnit | None = None

    @property
    def type(self) -> ColumnType:
        """The column type that expressions read it as."""
        return Dense(self.dtype) if self.separator is None else Ragged(self.dtype)

    @property
    def expected(self) -> str:
        """What a cell must be, as a reject's reason says it."""
        if self.dtype is DType.TIMESTAMP:
            return "an ISO 8601 time" if self.unit == "iso8601" else f"a time in whole {self.unit} since 1970"
        item = {DType.BOOL: "0, 1, true or false", DType.STRING: "UTF-8 text"}.get(self.dtype, str(self.dtype))
        return item if self.separator is None else f"{item}, separated by {self.separator!r}"


@dataclass(frozen=True, slots=True)
class LogTime:
    """Which column holds the event time, and its unit."""

    column: str
    unit: TimeUnit


@dataclass(frozen=True, slots=True)
class LogSchema:
    """A log's format, columns and event time. Build it with :meth:`from_file`.

    ``time`` is None only for logs that carry no time: they can be read, but not be imported.
    """

    format: LogFormat
    columns: tuple[LogColumn, ...]
    time: LogTime | None
    header: bool = False
    null: tuple[str, ...] = ("",)
    partition_by: PartitionBy = "hour"

    @classmethod
    def from_file(cls, path: str) -> LogSchema:
        """The schema in a JSON file. Raises :class:`LogSchemaError` naming the file, the entry and what is allowed."""
        try:
            with Path(path).open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            raise LogSchemaError("there is no schema file here", where=path,
                                 next_step="write one: docs/importing.md shows an example") from None  # fmt: skip
        except OSError as error:
            raise LogSchemaError("the schema file cannot be read", where=path, value=str(error)) from error
        document = _parse_json(content, path)
        return cls.from_document(document, where=path)

    @classmethod
    def from_document(cls, document: object, *, where: str = "schema") -> LogSchema:
        """The schema a JSON document describes; ``where`` prefixes the place named by errors."""
        top = _object(document, where, _SCHEMA_KEYS)
        time = _object(_need(top, "time", where), f"{where}, time", _TIME_KEYS)
        time_column = _text(_need(time, "column", f"{where}, time"), f"{where}, time.column")
        unit = _choice(time.get("unit", "iso8601"), TimeUnit, f"{where}, time.unit")
        columns = _columns(_need(top, "columns", where), where, time_column, unit)
        schema = cls(
            format=cast(LogFormat, _choice(_need(top, "format", where), LogFormat, f"{where}, format")),
            columns=columns,
            time=LogTime(time_column, cast(TimeUnit, unit)),
            header=_flag(top.get("header", False), f"{where}, header"),
            null=tuple(
                _text(spelling, f"{where}, null") for spelling in _list(top.get("null", [""]), f"{where}, null")
            ),
            partition_by=cast(
                PartitionBy, _choice(top.get("partition_by", "hour"), PartitionBy, f"{where}, partition_by")
            ),
        )
        if time_column not in schema.names:
            raise LogSchemaError("the time column is not among the columns", where=f"{where}, time.column",
                                 value=time_column, allowed=", ".join(schema.names))  # fmt: skip
        return schema

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the imported table."""
        return pa.schema([(column.name, arrow_type(column.type)) for column in self.columns])

    def digest(self) -> str:
        """SHA-256 over everything that decides how a file is read, as 64 hexadecimal digits."""
        columns = [[c.name, str(c.dtype), c.separator, c.required, c.unit] for c in self.columns]
        time = None if self.time is None else [self.time.column, self.time.unit]
        return digest([self.format, self.header, list(self.null), columns, time, self.partition_by])


def _parse_json(content: bytes, path: str) -> object:
    if len(content) > _MOST_BYTES:
        raise LogSchemaError("the schema file is too long", where=path, allowed=f"at most {_MOST_BYTES} bytes")
    try:
        return json.loads(content.decode("utf-8-sig"), object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise LogSchemaError("the schema file is not JSON", where=f"{path}, line {error.lineno}, "
                             f"column {error.colno}", value=error.msg) from None  # fmt: skip
    except (RecursionError, ValueError) as error:  # bytes that are no UTF-8, numbers of thousands of digits
        raise LogSchemaError("the schema file cannot be read", where=path, value=str(error)[:200]) from None


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the entry {twice!r} appears twice in one object")
    return entries


def _columns(value: object, where: str, time_column: str, time_unit: str) -> tuple[LogColumn, ...]:
    columns = tuple(
        _column(item, f"{where}, columns[{position}]", time_column, time_unit)
        for position, item in enumerate(_list(value, f"{where}, columns"))
    )
    if not columns:
        raise LogSchemaError("a log needs at least one column", where=f"{where}, columns")
    names = [column.name for column in columns]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise LogSchemaError("two columns have one name", where=f"{where}, columns[{position}].name", value=name)
    return columns


def _column(value: object, where: str, time_column: str, time_unit: str) -> LogColumn:
    entry = _object(value, where, _COLUMN_KEYS)
    name = _text(_need(entry, "name", where), f"{where}.name")
    dtype = _text(_need(entry, "type", where), f"{where}.type")
    if dtype not in set(DType):
        raise LogSchemaError("unknown column type", where=f"{where}.type", value=dtype, allowed=", ".join(DType))
    is_time = name == time_column
    if is_time and dtype != DType.TIMESTAMP:
        raise LogSchemaError("the time column must be a timestamp", where=f"{where}.type", value=dtype,
                             allowed="timestamp")  # fmt: skip
    separator = entry.get("separator")
    if separator is not None and (not _text(separator, f"{where}.separator") or dtype == DType.TIMESTAMP):
        raise LogSchemaError("a separator must be non-empty text, and not on a timestamp",
                             where=f"{where}.separator", value=separator)  # fmt: skip
    unit = entry.get("unit", time_unit if is_time else "iso8601")
    return LogColumn(
        name=name,
        dtype=DType(dtype),
        separator=cast("str | None", separator),
        required=_flag(entry.get("required", False), f"{where}.required") or is_time,
        unit=cast(TimeUnit, _choice(unit, TimeUnit, f"{where}.unit")) if dtype == DType.TIMESTAMP else None,
    )


def _object(value: object, where: str, keys: Sequence[str]) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise LogSchemaError("expected a JSON object", where=where, value=value)
    for key in value:
        if key not in keys:
            raise LogSchemaError(f"unknown entry {key!r}", where=where, allowed=", ".join(keys))
    return value


def _need(entry: Mapping[str, object], key: str, where: str) -> object:
    if key not in entry:
        raise LogSchemaError(f"the entry {key!r} is missing", where=where)
    return entry[key]


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise LogSchemaError("expected a JSON list", where=where, value=value)
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise LogSchemaError("expected text", where=where, value=value)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise LogSchemaError("text must be valid Unicode, got a lone surrogate", where=where,
                             value=ascii(value)) from None  # fmt: skip
    return value


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise LogSchemaError("expected true or false", where=where, value=value)
    return value


def _choice(value: object, choices: object, where: str) -> str:
    allowed = get_args(choices)
    if value not in allowed:
        raise LogSchemaError("not a choice here", where=where, value=value, allowed=", ".join(allowed))
    return str(value)
