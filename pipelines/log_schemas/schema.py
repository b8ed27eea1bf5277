"""The schema file of a log, which ``headrace table import`` reads.

A schema is a JSON document::

    {"format": "tsv",                       tsv, csv or jsonl, compressed or not
     "header": false,                       tsv and csv: the first line names the columns (unlisted ones are skipped)
     "null": ["", "NULL"],                  spellings of a missing value; default [""]
     "columns": [{"name": "user_id", "type": "int64", "required": true},
                 {"name": "genres", "type": "string", "separator": "|"},
                 {"name": "time", "type": "timestamp"}],
     "time": {"column": "time", "unit": "ms"},
     "partition_by": "hour"}                hour (the default) or day

A line that begins with ``//`` is a comment. Types are those of :class:`transforms.types.DType`; docs/importing.md lists
every entry. For a log without times ``time`` states their source; the time column is then added after the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal, cast

import pyarrow as pa

from pipelines.errors import LogSchemaError
from pipelines.log_schemas.columns import LogColumn, LogFormat, LogTime, MadeUpTime, TimeUnit, read_column, read_time
from pipelines.log_schemas.entries import (
    choice_entry,
    flag_entry,
    list_entry,
    needed,
    object_entry,
    text_entry,
)
from pipelines.log_schemas.syntax import (
    delimiter_entry,
    encoding_entry,
    escape_entry,
    preamble_entry,
    quote_entry,
    refuse_in_json,
)
from transforms.columns.arrow_types import arrow_type
from transforms.graphs.encoding import digest
from transforms.types import Dense, DType

__all__ = ["LogColumn", "LogFormat", "LogSchema", "LogTime", "MadeUpTime", "PartitionBy", "TimeUnit"]

PartitionBy = Literal["hour", "day"]

_SCHEMA_KEYS = ("format", "header", "null", "columns", "time", "partition_by", "encoding", "delimiter", "quote", "escape",
                "preamble", "trailing_delimiter")  # fmt: skip
_MOST_BYTES = 16 << 20
#: A comment line. JSON texts do not span lines.
_COMMENT = re.compile(r"^[ \t]*//[^\r\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LogSchema:
    """A log's format, columns and event time. Build it with :meth:`from_file`.

    Attributes:
        format: tsv, csv or jsonl.
        columns: the columns that are read, in order.
        time: the event time; None for a log that can be read, but not imported.
        header: whether the first line names the columns.
        null: spellings of a missing value.
        partition_by: the length of a partition.
        encoding: the text encoding of the files, as Python names it.
        delimiter: the character between cells; a tab in TSV.
        quote: whether a cell may be quoted; None for the format's default: yes in CSV, no in TSV.
        escape: the character that makes a quote, a delimiter, a line end or itself a part of the value; empty for none.
        preamble: the beginning of the lines that are skipped before the header and the first row; empty for none.
        trailing_delimiter: whether a delimiter may follow the last cell.
    """

    format: LogFormat
    columns: tuple[LogColumn, ...]
    time: LogTime | None
    header: bool = False
    null: tuple[str, ...] = ("",)
    partition_by: PartitionBy = "hour"
    encoding: str = "utf-8"
    delimiter: str = ""
    quote: bool | None = None
    escape: str = ""
    preamble: str = ""
    trailing_delimiter: bool = False

    @classmethod
    def from_file(cls, path: str) -> LogSchema:
        """Read a schema file. Raises :class:`LogSchemaError` naming the file, the entry and what is allowed."""
        try:
            with Path(path).open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            raise LogSchemaError(
                "the schema file must exist", where=path, next_step="write one with headrace table infer"
            ) from None
        except OSError as error:
            raise LogSchemaError("the schema file cannot be read", where=path, value=str(error)) from error
        document = _parse_json(content, path)
        return cls.from_document(document, where=path)

    @classmethod
    def from_document(cls, document: object, *, where: str = "schema") -> LogSchema:
        """The schema of a JSON document; ``where`` prefixes the places in errors."""
        top = object_entry(document, where, _SCHEMA_KEYS)
        time, form = read_time(top["time"], f"{where}, time") if "time" in top else (None, {})
        log_format = cast(LogFormat, choice_entry(needed(top, "format", where), LogFormat, f"{where}, format"))
        refuse_in_json(top, where, log_format)
        columns = _columns(needed(top, "columns", where), where, time, form, log_format)
        nulls = list_entry(top.get("null", [""]), f"{where}, null")
        by = choice_entry(top.get("partition_by", "hour"), PartitionBy, f"{where}, partition_by")
        return cls(
            format=log_format,
            columns=columns,
            time=_time_of(columns, time, where),
            header=flag_entry(top.get("header", False), f"{where}, header"),
            null=tuple(text_entry(spelling, f"{where}, null") for spelling in nulls),
            partition_by=cast(PartitionBy, by),
            encoding=encoding_entry(top.get("encoding", "utf-8"), f"{where}, encoding"),
            delimiter=delimiter_entry(top, where, log_format),
            quote=quote_entry(top, where, log_format),
            escape=escape_entry(top, where),
            preamble=preamble_entry(top, where),
            trailing_delimiter=flag_entry(top.get("trailing_delimiter", False), f"{where}, trailing_delimiter"),
        )

    def to_document(self) -> dict[str, object]:
        """The JSON document of the schema, without default values; the inverse of :meth:`from_document`."""
        document: dict[str, object] = {"format": self.format}
        options = {"encoding": self.encoding if self.encoding != "utf-8" else "", "delimiter": self.delimiter,
                   "header": self.header}  # fmt: skip
        document |= {key: value for key, value in options.items() if value}
        document |= {} if self.quote is None else {"quote": self.quote}
        shapes = {"escape": self.escape, "preamble": self.preamble, "trailing_delimiter": self.trailing_delimiter}
        document |= {key: value for key, value in shapes.items() if value}
        document |= {} if self.null == ("",) else {"null": list(self.null)}
        document["columns"] = [column.to_document() for column in self.columns]
        if self.time is not None:
            named = (column for column in self.columns if self.time.made_up is None and column.name == self.time.column)
            document["time"] = self.time.to_document(next(named, None))
        return document | ({} if self.partition_by == "hour" else {"partition_by": self.partition_by})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that the log holds, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the imported table: the log's columns, and the time if it is made up."""
        fields = [(column.name, arrow_type(column.type)) for column in self.columns]
        if self.time is not None and self.time.made_up is not None:
            fields.append((self.time.column, arrow_type(Dense(DType.TIMESTAMP))))
        return pa.schema(fields)

    @property
    def read_schema(self) -> pa.Schema:
        """The Arrow schema of the log's own columns."""
        return pa.schema([(column.name, arrow_type(column.type)) for column in self.columns])

    @property
    def cell_delimiter(self) -> str:
        """The character between cells of a TSV or CSV log."""
        return self.delimiter or ("\t" if self.format == "tsv" else ",")

    @property
    def quoted(self) -> bool:
        """Whether a cell may be quoted."""
        return self.quote if self.quote is not None else self.format == "csv"

    def bounded(self, now: datetime) -> LogSchema:
        """The same schema with the range of plausible event times of an import at ``now``."""
        return self if self.time is None else replace(self, time=self.time.bounded(now))

    def digest(self) -> str:
        """SHA-256 of the schema, as 64 hexadecimal digits; equal schemas read files alike."""
        return digest([json.dumps(self.to_document(), sort_keys=True)])


def _time_of(columns: tuple[LogColumn, ...], time: LogTime | None, where: str) -> LogTime | None:
    """The event time with its column's unit. Raises :class:`LogSchemaError` unless its column exists."""
    if time is None:
        return None
    named = [column for column in columns if column.name == time.column]
    if time.made_up is not None:
        if named:
            raise LogSchemaError("a made-up time must have a column of its own", where=f"{where}, time.column",
                                 value=time.column, allowed="a name that no column has")  # fmt: skip
        return time
    if not named:
        raise LogSchemaError("the time column must be one of the columns", where=f"{where}, time.column",
                             value=time.column, allowed=", ".join(column.name for column in columns))  # fmt: skip
    return replace(time, unit=named[0].unit)


def _parse_json(content: bytes, path: str) -> object:
    if len(content) > _MOST_BYTES:
        raise LogSchemaError(f"the schema file must have at most {_MOST_BYTES} bytes", where=path)
    try:
        return json.loads(_COMMENT.sub("", content.decode("utf-8-sig")), object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise LogSchemaError(
            "the schema file must be JSON", where=f"{path}, line {error.lineno}, column {error.colno}", value=error.msg
        ) from None
    except (RecursionError, ValueError) as error:  # bytes that are no UTF-8, numbers of thousands of digits
        raise LogSchemaError("the schema file cannot be read", where=path, value=str(error)[:200]) from None


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the entry {twice!r} appears twice in one object")
    return entries


def _columns(
    value: object, where: str, time: LogTime | None, form: Mapping[str, object], log_format: LogFormat
) -> tuple[LogColumn, ...]:
    columns = tuple(
        read_column(item, f"{where}, columns[{position}]", time, form, log_format)
        for position, item in enumerate(list_entry(value, f"{where}, columns"))
    )
    if not columns:
        raise LogSchemaError("a log must have at least one column", where=f"{where}, columns")
    names = [column.name for column in columns]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise LogSchemaError("column names must be unique", where=f"{where}, columns[{position}].name", value=name)
    return columns
