"""The partition of each row of a lake, by its event time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from transforms.arrays import Ints
from transforms.errors import DataError, InputError, TypeMismatch, nearest
from warehouse.tables.partitions import partition_range

PartitionBy = Literal["hour", "day"]
TimeUnit = Literal["", "s", "ms", "us", "ns"]

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECS = {"hour": 3_600, "day": 86_400}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Placement:
    """How rows are placed: the column of event times, its unit if it holds integers, and hours or days.

    Make one with :func:`placement_of`.
    """

    time_column: str
    time_unit: TimeUnit
    partition_by: PartitionBy

    def numbers(self, times: pa.ChunkedArray, where: str) -> Ints:
        """The number of whole hours or days between 1970 and each time. Raises :class:`DataError` for a null."""
        if times.null_count:
            raise DataError("an event's time must not be null", where=f"{where}, column {self.time_column}",
                            value=f"null in {times.null_count} of {len(times)} rows",
                            next_step="delete such rows in the lake, or name another --time-column")  # fmt: skip
        kind, unit = times.type, self.time_unit
        if pat.is_date(kind):
            times, unit = times.cast(pa.timestamp("s" if pat.is_date32(kind) else "ms")), ""
        if pat.is_timestamp(times.type):
            unit = times.type.unit
        counts = np.asarray(times.cast(pa.int64(), safe=False))
        found: Ints = np.floor_divide(counts, _PER_SECOND[unit] * _SECS[self.partition_by])
        return found

    def number_of(self, key: str) -> int:
        """The number of a partition."""
        return int(partition_range(key)[0].timestamp()) // _SECS[self.partition_by]

    def key(self, number: int, where: str) -> str:
        """The partition with a number. Raises :class:`DataError` for one outside the years 1 to 9999."""
        try:
            start = _EPOCH + timedelta(seconds=number * _SECS[self.partition_by])
        except OverflowError as error:
            raise DataError("an event's time must be in the years 1 to 9999", where=f"{where}, column {self.time_column}",
                            value=f"{self.partition_by} {number:,} since 1970",
                            next_step="check --time-unit, or delete such rows in the lake") from error  # fmt: skip
        day = f"date={start.date().isoformat()}"
        key = day if self.partition_by == "day" else f"{day}/hour={start.hour:02d}"
        partition_range(key, where)
        return key


def placement_of(schema: pa.Schema, time_column: str, time_unit: str, partition_by: str, where: str) -> Placement:
    """The placement of a lake's rows. Raises :class:`InputError` and :class:`TypeMismatch` for options that do not fit."""
    if partition_by not in get_args(PartitionBy):
        raise InputError("rows must be partitioned by hour or by day", where="--partition-by", value=partition_by,
                         allowed=", ".join(get_args(PartitionBy)))  # fmt: skip
    times = [field.name for field in schema if pat.is_timestamp(field.type)]
    if not time_column:
        if len(times) != 1:
            raise InputError("a lake's table must have one column of event times", where=where,
                             value=f"columns of timestamps: {', '.join(times) or 'none'}",
                             allowed=", ".join(schema.names)[:300], next_step="name it with --time-column")  # fmt: skip
        time_column = times[0]
    if time_column not in schema.names:
        raise InputError("the time column must be one of the lake's", where=f"{where}, --time-column", value=time_column,
                         allowed=nearest(time_column, schema.names))  # fmt: skip
    kind = schema.field(time_column).type
    whole = pat.is_integer(kind)
    if not (whole or pat.is_timestamp(kind) or pat.is_date(kind)):
        raise TypeMismatch("a time column must hold timestamps, dates or integers", where=f"{where}, column {time_column}",
                           value=str(kind), allowed="a timestamp, a date, or an integer with --time-unit")  # fmt: skip
    if whole != bool(time_unit) or time_unit not in get_args(TimeUnit):
        raise InputError("a time column of integers, and no other, must have a unit", where="--time-unit", value=time_unit or None,
                         allowed="s, ms, us or ns since 1970" if whole else f"none: {time_column} is {kind}")  # fmt: skip
    unit: TimeUnit = next(one for one in get_args(TimeUnit) if one == time_unit)
    by: PartitionBy = "hour" if partition_by == "hour" else "day"
    return Placement(time_column, unit, by)
