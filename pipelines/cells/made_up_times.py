"""Event times for a log without times: one fixed time, the file's name, or the order of rows.

By order, row n of all files in import order has the time ``start`` + n / ``rows_per_hour`` hours. Bad rows and blank
lines are counted too, so that correcting one changes no other row's time.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.cells.times import MICROSECONDS, from_local
from pipelines.log_schemas.columns import LogTime, MadeUpTime, micros
from pipelines.log_schemas.file_names import uncompressed_name
from pipelines.log_schemas.time_formats import file_name_pattern, read_times
from transforms.errors import DataError

_HOUR_US = 3_600_000_000


def made_up_times(time: LogTime, path: str, places: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """The time of each row of the file at ``path``; ``places`` count from the first row of all files.

    Raises :class:`DataError` for a file whose name does not fit, and for times outside the years of partitions.
    """
    assert time.made_up is not None
    if time.made_up.start is None:
        microseconds = np.full(len(places), file_time_us(time, path), np.int64)
    else:
        hours, rest = np.divmod(places, time.made_up.rows_per_hour)
        microseconds = micros(time.made_up.start) + hours * _HOUR_US + rest * _HOUR_US // time.made_up.rows_per_hour
        if len(microseconds):
            _check_range(time, int(microseconds[-1]), path, 'raise "rows_per_hour", or begin earlier')
    return pa.array(microseconds, pa.int64()).cast(MICROSECONDS)


def file_time_us(time: LogTime, path: str) -> int:
    """The common time of a file's rows in microseconds since 1970. Raises :class:`DataError` if there is none."""
    made_up = time.made_up
    assert made_up is not None
    if made_up.start is not None:
        return micros(made_up.start)
    if made_up.fixed is not None:
        return micros(made_up.fixed)
    found = _name_time_us(made_up, path)
    _check_range(time, found, path, "correct the file's name, or the pattern")
    return found


def _name_time_us(made_up: MadeUpTime, path: str) -> int:
    name = os.path.basename(path)
    names = pa.array([name, uncompressed_name(name)], pa.binary()).cast(pa.string(), safe=False)
    times = read_times(names, (file_name_pattern(made_up.file_name),))
    if not times.read.any():
        raise DataError("a file's name must give the time of its rows", where=path, value=name,
                        allowed=f"a name such as {made_up.file_name}",
                        next_step='correct "file_name" of the schema\'s time, or import these files separately')  # fmt: skip
    at = int(np.flatnonzero(times.read)[0])
    read = times.microseconds[at : at + 1]
    return int((from_local(read, made_up.zone) if made_up.zone and times.local[at] else read)[0])


def _check_range(time: LogTime, microseconds: int, path: str, next_step: str) -> None:
    bounds = time.bounded_range_us
    if not bounds[0] <= microseconds < bounds[1]:
        raise DataError("a made-up time must lie within the years 1 to 9999", where=path,
                        value=f"{microseconds} microseconds since 1970", allowed="the range that the schema's time sets",
                        next_step=next_step)  # fmt: skip
