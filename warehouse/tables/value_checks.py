"""Checks of the rows of new files: event times, and values that no declared type can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from transforms.columns.stored_types import fits
from transforms.errors import DataError, InputError
from warehouse.tables.partitions import partition_range

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECS_PER_DAY = 86_400


def times_rule(rule: str) -> bool:
    """Whether the rule for times outside their partition is ``refuse``. Raises :class:`InputError` for another rule."""
    if rule not in ("refuse", "keep"):
        raise InputError("the rule for times outside of their partition must be refuse or keep",
                         where="--outside-times", value=rule, allowed="refuse, keep")  # fmt: skip
    return rule == "refuse"


class ValueChecks:
    """Checks the rows of new files.

    Attributes:
        time_column: the column of event times, or None.
        refuses_outside: whether a time outside its partition is an error.
        partitions: the partition of each file, by path.
        levels: the values of columns that the folders of each file state, by path.
        unread_levels: the levels whose files have a column of that name with other values, one text by level.
    """

    def __init__(
        self,
        time_column: str | None,
        refuses_outside: bool,
        partitions: Mapping[str, str],
        levels: Mapping[str, Mapping[str, str | None]],
    ) -> None:
        self.time_column, self.refuses_outside, self.partitions = time_column, refuses_outside, partitions
        self.levels = levels
        self.unread_levels: dict[str, str] = {}
        self._unfit: dict[str, str] = {}
        self._outside_rows = 0
        self._first_outside = ""

    @property
    def outside(self) -> str:
        """The number of events with a time outside their partition, and the first of them; empty for none."""
        if not self._outside_rows:
            return ""
        return f"{self._outside_rows:,}; the first is {self._first_outside}"

    @property
    def unfit(self) -> tuple[str, ...]:
        """The columns with values that their declared type cannot hold."""
        return tuple(self._unfit.values())

    def check(self, path: str, first_row: int, rows: pa.Table) -> None:
        """Check some rows of a file. Raises :class:`DataError` for a time outside the file's partition."""
        if self.time_column is not None:
            self._check_times(rows.column(self.time_column), self.partitions[path], path, first_row)
        for name in rows.column_names:
            if name not in self._unfit and not fits(rows.column(name)):
                self._unfit[name] = _unfit_text(name, rows.column(name).type, path)
        for name, value in self.levels.get(path, {}).items():
            if (
                name in rows.column_names
                and name not in self.unread_levels
                and not _holds_only(rows.column(name), value)
            ):
                self.unread_levels[name] = (
                    f"{name}: {path} has a column of this name, with other values than its folder's {value or 'null'}"
                )

    def _check_times(self, times: pa.ChunkedArray, partition: str, path: str, first_row: int) -> None:
        outside = _outside(times, partition)
        if not len(outside):
            return
        row = int(outside[0])
        where, value = f"{path}, row {first_row + row}, column {self.time_column}", _spelled(times, row)
        if not self.refuses_outside:
            self._first_outside = self._first_outside or f"{where}: {value}"
            self._outside_rows += len(outside)
            return
        start, end = partition_range(partition)
        more = f", and {len(outside) - 1:,} more rows" if len(outside) > 1 else ""
        raise DataError("an event's time must be in its partition", where=where, value=f"{value}{more}",
                        allowed=f"{start:%Y-%m-%dT%H:%M} to {end:%Y-%m-%dT%H:%M} in UTC",
                        next_step="write the file without such rows, or with a null time, or in the partition of its "
                        "times; --outside-times keep registers them where they are")  # fmt: skip


def _holds_only(column: pa.ChunkedArray, value: str | None) -> bool:
    """Whether all values of a column are this one in text form."""
    if value is None:
        return bool(column.null_count == len(column))
    try:
        texts = column.cast(pa.string())
    except pa.ArrowException:
        return False
    return bool(pc.all(pc.fill_null(pc.equal(texts, value), False), min_count=0).as_py())


def _unfit_text(name: str, stored: pa.DataType, path: str) -> str:
    stored = stored.value_type if pat.is_dictionary(stored) else stored
    if pat.is_uint64(stored):
        return (
            f"{name}, uint64, holds values above 9223372036854775807, which int64 does not: "
            f'store an id as text, table["{name}"].cast(pa.string()) in pyarrow ({path} is the first file)'
        )
    return (
        f"{name}, {stored}, holds bytes that are not UTF-8 text: store them as hexadecimal text, "
        f'pa.array([v and v.hex() for v in table["{name}"].to_pylist()], pa.string()) ({path} is the first file)'
    )


def _outside(times: pa.ChunkedArray, partition: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The rows with a time outside a partition; none for a column without a unit."""
    counted = _counts(times)
    if counted is None:
        return np.zeros(0, np.int64)
    counts, valid, per_day = counted
    start, end = partition_range(partition)
    # Whole days since 1970 first: seconds of the year 9999 in nanoseconds are beyond int64.
    low, high = (int(at.timestamp()) * per_day // _SECS_PER_DAY for at in (start, end))
    return np.flatnonzero(valid & ((counts < low) | (counts >= max(high, low + 1))))


def _counts(times: pa.ChunkedArray) -> tuple[Any, Any, int] | None:
    """Units since 1970, the mask of non-null ones, and the units of a day; None for a column without a unit."""
    kind = times.type
    if pat.is_timestamp(kind):
        per_day, width = _PER_SECOND[kind.unit] * _SECS_PER_DAY, pa.int64()
    elif pat.is_date(kind):
        per_day, width = (1, pa.int32()) if pat.is_date32(kind) else (1000 * _SECS_PER_DAY, pa.int64())
    else:
        return None
    counts = times.cast(width).fill_null(0).to_numpy().astype(np.int64)
    return counts, times.is_valid().to_numpy(), per_day


def _spelled(times: pa.ChunkedArray, row: int) -> str:
    """A time as ISO 8601, or its count if the calendar has no such day."""
    try:
        return str(times[row].as_py().isoformat())
    except (ValueError, OverflowError, AttributeError):
        return str(times[row : row + 1].cast(pa.int32() if pat.is_date32(times.type) else pa.int64())[0])
