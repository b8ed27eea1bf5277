"""The columns of a log and its event time, as a schema file declares them.

:meth:`LogColumn.to_document` is the inverse of :func:`read_column`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, cast

import pyarrow as pa

from pipelines.errors import LogSchemaError
from pipelines.log_schemas.entries import (
    character_entry,
    choice_entry,
    flag_entry,
    list_entry,
    needed,
    object_entry,
    text_entry,
)
from pipelines.log_schemas.time_formats import ISO_8601, file_name_pattern, read_times, time_pattern
from transforms.errors import InputError
from transforms.operators.zones import clock_changes
from transforms.types import ColumnType, Dense, DType, Ragged

LogFormat = Literal["tsv", "csv", "jsonl"]
TimeUnit = Literal["s", "ms", "us", "ns", "iso8601"]

_COLUMN_KEYS = ("name", "type", "separator", "list", "required", "unit", "format", "zone", "path", "json", "thousands",
                "decimal", "trim", "hexadecimal", "non_finite")  # fmt: skip
_TIME_KEYS = ("column", "unit", "format", "zone", "from", "until", "fixed", "file_name", "row_order")
_FLAGS = ("list", "json", "trim", "hexadecimal", "non_finite")
#: The types of columns that may have an entry.
_ONLY_ON = {
    "unit": (DType.TIMESTAMP,), "format": (DType.TIMESTAMP,), "zone": (DType.TIMESTAMP,), "json": (DType.STRING,),
    "thousands": (DType.INT64, DType.FLOAT32, DType.FLOAT64), "decimal": (DType.FLOAT32, DType.FLOAT64),
    "hexadecimal": (DType.INT64,), "non_finite": (DType.FLOAT32, DType.FLOAT64),
}  # fmt: skip
_MOST_FORMATS = 20
_DEEPEST_PATH = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Without "until" event times may be up to a year in the future: plans and bookings, not sentinels.
_AHEAD = timedelta(days=366)
#: The first and last times that have a partition before and after them.
_FIRST, _LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class LogColumn:
    """One column of a log.

    Attributes:
        name: its name in the table, and in the header of a file that has one.
        dtype: the type of its values, or of its items.
        separator: splits a cell into a list.
        required: whether a missing value makes the row bad.
        unit: how a time is written; None for other types, and where ``formats`` say it.
        formats: patterns of strptime directives for a time, tried in order.
        zone: the IANA zone of times that name no offset; empty for UTC.
        is_list: whether the value is a JSON array.
        path: the keys that lead to the value in a JSON line; empty for the name.
        is_json: whether the value is kept as JSON text.
        thousands: the character between groups of three digits.
        decimal: the character before the fraction.
        trim: whether spaces around a value are dropped.
        hexadecimal: whether ``0x1F`` is an integer.
        non_finite: whether infinities and NaN are floats.
    """

    name: str
    dtype: DType
    separator: str | None = None
    required: bool = False
    unit: TimeUnit | None = None
    formats: tuple[str, ...] = ()
    zone: str = ""
    is_list: bool = False
    path: tuple[str, ...] = ()
    is_json: bool = False
    thousands: str = ""
    decimal: str = "."
    trim: bool = False
    hexadecimal: bool = False
    non_finite: bool = False

    @property
    def type(self) -> ColumnType:
        """The column type that expressions read it as."""
        return Ragged(self.dtype) if self.is_list or self.separator is not None else Dense(self.dtype)

    @property
    def keys(self) -> tuple[str, ...]:
        """The path to the value in a JSON line: ``path``, or the name."""
        return self.path or (self.name,)

    @property
    def expected(self) -> str:
        """What a cell must be, for a reject's reason."""
        if self.is_json:
            return "a JSON value"
        item = self._expected_item()
        if self.is_list:
            return f"a list of: {item}"
        return item if self.separator is None else f"{item}, separated by {self.separator!r}"

    def _expected_item(self) -> str:
        if self.formats:
            return "a time as " + " or ".join(f'"{one}"' for one in self.formats)
        if self.dtype is DType.TIMESTAMP:
            return "an ISO 8601 time" if self.unit == "iso8601" else f"a time in {self.unit} since 1970"
        item = {DType.BOOL: "0, 1, true or false", DType.STRING: "UTF-8 text"}.get(self.dtype, str(self.dtype))
        marks = [f"{mark!r} {use}" for mark, use in ((self.thousands, "between thousands"),) if mark]
        marks += [f"{self.decimal!r} before the fraction"] if self.decimal != "." else []
        return f"{item} with {' and '.join(marks)}" if marks else item

    def to_document(self) -> dict[str, object]:
        """The column's entry in a schema file, without default values."""
        document: dict[str, object] = {"name": self.name, "type": str(self.dtype)}
        if self.separator is not None:
            document["separator"] = self.separator
        texts = {"zone": self.zone, "thousands": self.thousands, "decimal": "" if self.decimal == "." else self.decimal}
        flags = {"list": self.is_list, "required": self.required, "json": self.is_json, "trim": self.trim,
                 "hexadecimal": self.hexadecimal, "non_finite": self.non_finite}  # fmt: skip
        document |= _time_form(self.unit, self.formats)
        document |= {key: value for key, value in {**texts, **flags}.items() if value}
        if self.path:
            plain = all("." not in key and key for key in self.path)
            document["path"] = ".".join(self.path) if plain else list(self.path)
        return document


@dataclass(frozen=True, slots=True)
class MadeUpTime:
    """The source of event times for a log without times; exactly one of ``fixed``, ``file_name``, ``start`` is set.

    Attributes:
        fixed: one time for every row.
        file_name: a pattern that reads the time from the file's name.
        start: the time of the first row; the rows follow at equal distances.
        rows_per_hour: rows per hour after ``start``.
        zone: the IANA zone of times in file names; empty for UTC.
    """

    fixed: datetime | None = None
    file_name: str = ""
    start: datetime | None = None
    rows_per_hour: int = 0
    zone: str = ""


@dataclass(frozen=True, slots=True)
class LogTime:
    """The event time: its column, its format, and the range of plausible times.

    Attributes:
        column: the column's name.
        unit: its unit; None if it has formats or is made up.
        earliest: the first plausible time; None for 1970.
        until: the first time that is too late; None for a year after the import.
        made_up: set if the log holds no time; the column is then added.
    """

    column: str
    unit: TimeUnit | None = "iso8601"
    earliest: datetime | None = None
    until: datetime | None = None
    made_up: MadeUpTime | None = None

    def bounded(self, now: datetime) -> LogTime:
        """The same with both ends of the plausible range set."""
        if self.made_up is not None:
            return self
        latest = min(now + _AHEAD, _LAST)
        return LogTime(self.column, self.unit, self.earliest or _EPOCH, self.until or latest, self.made_up)

    @property
    def range_us(self) -> tuple[int, int] | None:
        """The plausible times in microseconds since 1970, end excluded; None unless both ends are set."""
        return None if self.earliest is None and self.until is None else self.bounded_range_us

    @property
    def bounded_range_us(self) -> tuple[int, int]:
        """The plausible times in microseconds since 1970; an end that is not set is the limit of partitions."""
        return micros(self.earliest or _FIRST), micros(self.until or _LAST)

    def to_document(self, column: LogColumn | None) -> dict[str, object]:
        """The entry ``time`` of a schema file; ``column`` is the one that holds the time."""
        document: dict[str, object] = {"column": self.column}
        if column is not None:
            document |= _time_form(column.unit, column.formats)
        ends = {"from": self.earliest, "until": self.until}
        document |= {key: _written(end) for key, end in ends.items() if end is not None}
        zone = column.zone if column is not None else ""
        if self.made_up is not None:
            document |= _made_up_document(self.made_up)
            zone = self.made_up.zone
        return document | ({"zone": zone} if zone else {})


def plausible_range_us(now: datetime) -> tuple[int, int]:
    """The plausible event times of an import at ``now`` whose schema sets no range, end excluded."""
    return LogTime("").bounded(now).bounded_range_us


def micros(time: datetime) -> int:
    """Whole microseconds since 1970."""
    return (time - _EPOCH) // _MICROSECOND


def _written(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _time_form(unit: str | None, formats: tuple[str, ...]) -> dict[str, object]:
    if formats:
        return {"format": formats[0] if len(formats) == 1 else list(formats)}
    return {} if unit is None else {"unit": unit}


def _made_up_document(made_up: MadeUpTime) -> dict[str, object]:
    if made_up.fixed is not None:
        return {"fixed": _written(made_up.fixed)}
    if made_up.file_name:
        return {"file_name": made_up.file_name}
    assert made_up.start is not None
    return {"row_order": {"start": _written(made_up.start), "rows_per_hour": made_up.rows_per_hour}}


def read_time(value: object, where: str) -> tuple[LogTime, Mapping[str, object]]:
    """Read the entry ``time``: the event time, and unit, format and zone of its column."""
    entry = object_entry(value, where, _TIME_KEYS)
    made_up = _made_up(entry, where)
    if made_up is not None:
        for key in ("unit", "format"):
            if key in entry:
                raise LogSchemaError(f"the entry {key!r} must not be given with fixed, file_name or row_order", where=f"{where}.{key}",
                                     value=entry[key], next_step="leave it out")  # fmt: skip
    given = entry.get("column", "time") if made_up is not None else needed(entry, "column", where)
    earliest, until = (_moment(entry[key], f"{where}.{key}") if key in entry else None for key in ("from", "until"))
    if earliest is not None and until is not None and not earliest < until:
        raise LogSchemaError("the plausible times must end after they begin", where=f"{where}.until",
                             value=entry["until"], allowed=f"after {entry['from']}")  # fmt: skip
    form = {key: entry[key] for key in ("unit", "format", "zone") if key in entry}
    unit, _ = _time_forms(form, where) if made_up is None else (None, ())
    return LogTime(text_entry(given, f"{where}.column"), unit, earliest, until, made_up), form


def _made_up(entry: Mapping[str, object], where: str) -> MadeUpTime | None:
    ways = [key for key in ("fixed", "file_name", "row_order") if key in entry]
    if not ways:
        return None
    if len(ways) > 1:
        raise LogSchemaError("a made-up time must have one of fixed, file_name, row_order", where=where, value=" and ".join(ways),
                             allowed="one of fixed, file_name, row_order")  # fmt: skip
    way, at = ways[0], f"{where}.{ways[0]}"
    if way == "fixed":
        return MadeUpTime(fixed=_moment(entry[way], at))
    if way == "file_name":
        pattern = text_entry(entry[way], at)
        file_name_pattern(pattern, at)
        return MadeUpTime(file_name=pattern, zone=_zone(entry.get("zone", ""), f"{where}.zone"))
    rows = object_entry(entry[way], at, ("start", "rows_per_hour"))
    count = needed(rows, "rows_per_hour", at)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 10**9:
        raise LogSchemaError("rows_per_hour must be an integer from 1 to 1000000000", where=f"{at}.rows_per_hour", value=count,
                             allowed="1 to 1000000000")  # fmt: skip
    return MadeUpTime(start=_moment(needed(rows, "start", at), f"{at}.start"), rows_per_hour=count)


def _moment(value: object, where: str) -> datetime:
    """An ISO 8601 time; UTC if it has no offset."""
    text = text_entry(value, where)
    times = read_times(pa.array([text], pa.string()), ISO_8601)
    moment = _EPOCH + timedelta(microseconds=int(times.microseconds[0])) if times.read[0] else None
    if moment is None or not _FIRST <= moment <= _LAST:
        raise LogSchemaError("a time must be written in ISO 8601", where=where, value=text,
                             allowed=f"such as 2026-01-01T00:00Z, at most {_LAST:%Y-%m-%d}")  # fmt: skip
    return moment


def _zone(value: object, where: str) -> str:
    zone = text_entry(value, where)
    if not zone:
        return ""
    try:
        clock_changes(zone)
    except InputError as error:
        raise LogSchemaError(
            error.what, where=where, value=zone, allowed=error.allowed, next_step=error.next_step
        ) from None
    return zone


def _time_forms(entry: Mapping[str, object], where: str) -> tuple[TimeUnit | None, tuple[str, ...]]:
    """The unit or the formats of an entry; ISO 8601 by default."""
    if "format" not in entry:
        return cast(TimeUnit, choice_entry(entry.get("unit", "iso8601"), TimeUnit, f"{where}.unit")), ()
    if "unit" in entry:
        raise LogSchemaError("a time must have a unit or a format, not both", where=f"{where}.unit",
                             value=entry["unit"], next_step="leave one out")  # fmt: skip
    value = entry["format"]
    items = value if isinstance(value, list) else [value]
    if not 1 <= len(items) <= _MOST_FORMATS:
        raise LogSchemaError(f"format must be 1 to {_MOST_FORMATS} formats", where=f"{where}.format", value=len(items),
                             allowed=f"1 to {_MOST_FORMATS}")  # fmt: skip
    formats = tuple(text_entry(item, f"{where}.format") for item in items)
    for one in formats:
        time_pattern(one, f"{where}.format")
    return None, formats


def read_column(value: object, where: str, time: LogTime | None, time_form: Mapping[str, object],
                log_format: LogFormat) -> LogColumn:  # fmt: skip
    """Read one column of a schema document; ``time_form``: unit, format and zone from the entry ``time``."""
    entry = object_entry(value, where, _COLUMN_KEYS)
    name = text_entry(needed(entry, "name", where), f"{where}.name")
    dtype = _dtype(entry, where)
    is_time = time is not None and time.made_up is None and name == time.column
    if is_time and dtype != DType.TIMESTAMP:
        raise LogSchemaError(
            "the time column must be a timestamp", where=f"{where}.type", value=dtype, allowed="timestamp"
        )
    for key, dtypes in _ONLY_ON.items():
        if key in entry and dtype not in dtypes:
            raise LogSchemaError(f"the entry {key!r} must be given for a type that takes it", where=f"{where}.{key}",
                                 value=entry[key], allowed=f"on {', '.join(dtypes)}")  # fmt: skip
    form = {key: entry[key] for key in ("unit", "format", "zone") if key in entry}
    if is_time:
        own = {"unit", "format"} & set(form)
        form = {key: said for key, said in time_form.items() if not own or key == "zone"} | form
    unit, formats = _time_forms(form, where) if dtype == DType.TIMESTAMP else (None, ())
    flags = {key: flag_entry(entry.get(key, False), f"{where}.{key}") for key in (*_FLAGS, "required")}
    column = LogColumn(
        name=name,
        dtype=dtype,
        separator=_separator(entry, where),
        required=flags["required"] or is_time,
        unit=unit,
        formats=formats,
        zone=_zone(form.get("zone", ""), f"{where}.zone"),
        is_list=flags["list"],
        path=_path(entry["path"], f"{where}.path") if "path" in entry else (),
        is_json=flags["json"],
        thousands=character_entry(entry["thousands"], f"{where}.thousands", "-+0123456789eExX\r\n") if "thousands" in entry
        else "",
        decimal=character_entry(entry["decimal"], f"{where}.decimal", "-+0123456789eE \r\n") if "decimal" in entry else ".",
        trim=flags["trim"],
        hexadecimal=flags["hexadecimal"],
        non_finite=flags["non_finite"],
    )  # fmt: skip
    _check_together(column, entry, where, is_time, log_format)
    return column


def _dtype(entry: Mapping[str, object], where: str) -> DType:
    dtype = text_entry(needed(entry, "type", where), f"{where}.type")
    if dtype not in set(DType):
        raise LogSchemaError(
            "a column type must be a known one", where=f"{where}.type", value=dtype, allowed=", ".join(DType)
        )
    return DType(dtype)


def _separator(entry: Mapping[str, object], where: str) -> str | None:
    separator = entry.get("separator")
    if separator is not None and not text_entry(separator, f"{where}.separator"):
        raise LogSchemaError("a separator must be non-empty text", where=f"{where}.separator", value=separator)
    return cast("str | None", separator)


def _path(value: object, where: str) -> tuple[str, ...]:
    keys = value.split(".") if isinstance(value, str) else list_entry(value, where)
    path = tuple(text_entry(key, where) for key in keys)
    if not 1 <= len(path) <= _DEEPEST_PATH or (isinstance(value, str) and "" in path):
        raise LogSchemaError("a path must be keys with dots between them, or a list of keys", where=where, value=value,
                             allowed=f"1 to {_DEEPEST_PATH} keys, such as user.geo.country")  # fmt: skip
    return path


def _check_together(
    column: LogColumn, entry: Mapping[str, object], where: str, is_time: bool, log_format: LogFormat
) -> None:
    for key in ("list", "json", "path"):
        if log_format != "jsonl" and entry.get(key):
            raise LogSchemaError(f"the entry {key!r} must be given for JSON lines only", where=f"{where}.{key}", value=entry[key],
                                 allowed="jsonl" + (", or a separator" if key == "list" else ""))  # fmt: skip
    both = [key for key in ("list", "separator", "json") if entry.get(key)]
    if len(both) > 1:
        raise LogSchemaError("a column must have at most one of list, separator, json", where=f"{where}.{both[1]}", value=" and ".join(both),
                             allowed="one of list, separator, json")  # fmt: skip
    if is_time and both:
        raise LogSchemaError(
            "the time column must hold one time per row", where=f"{where}.{both[0]}", value=entry[both[0]]
        )
    if column.thousands and column.thousands == column.decimal and column.dtype is not DType.INT64:
        raise LogSchemaError("thousands and decimal must be different characters", where=f"{where}.thousands",
                             value=column.thousands, next_step='name the other with "decimal"')  # fmt: skip
