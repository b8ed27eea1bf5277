"""Partition keys: ``date=2026-01-01`` is a day, ``date=2026-01-01/hour=03`` an hour, both in UTC."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from transforms.errors import DataError

_DAY = re.compile(r"date=(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_HOUR = re.compile(r"hour=(\d{1,2})", re.ASCII)
_ALLOWED = "date=YYYY-MM-DD or date=YYYY-MM-DD/hour=HH; also ds= or dt=, YYYYMMDD, or year=/month=/day="


def partition_range(key: str, where: str = "") -> tuple[datetime, datetime]:
    """The half-open time range of a partition key. Raises :class:`DataError` for another text."""
    parts = key.split("/")
    day = _DAY.fullmatch(parts[0])
    hour = _HOUR.fullmatch(parts[1]) if len(parts) == 2 else None
    if day is None or len(parts) > 2 or (len(parts) == 2 and hour is None):
        raise not_a_partition(key, where)
    try:
        year, month, date = (int(part) for part in day.groups())
        start = datetime(year, month, date, int(hour.group(1)) if hour else 0, tzinfo=UTC)
        return start, start + (timedelta(hours=1) if hour else timedelta(days=1))
    except ValueError as error:
        raise not_a_partition(key, where) from error
    except OverflowError as error:
        raise DataError("a partition must end before the year 10000", where=where, value=key,
                        allowed="date=0001-01-01 to date=9999-12-30",
                        next_step="remove the folder: such a date often means that the time is unknown") from error  # fmt: skip


def refuse_overlaps(ranges: Mapping[str, tuple[datetime, datetime]], root: str) -> None:
    """Raise :class:`DataError` for two partitions over the same time, whose events would be trained twice."""
    ordered = sorted(ranges.items(), key=lambda item: (item[1], item[0]))
    for (earlier, (_, end)), (later, (start, _)) in pairwise(ordered):
        if start < end:
            raise DataError("partitions must not overlap in time", where=root, value=f"{earlier} and {later}",
                            allowed="each hour, or each day, in one folder",
                            next_step="move the files of one into the other")  # fmt: skip


def not_a_partition(key: str, where: str) -> DataError:
    """The error of a file whose folders state no day or hour."""
    return DataError("the folder of a file must be a time partition", where=where, value=key, allowed=_ALLOWED,
                     next_step="import the files, by the times of their events: "
                     "headrace table import NAME FOLDER --time-column COLUMN; or lay them out as "
                     "<root>/date=2026-01-01/hour=03/part.parquet")  # fmt: skip
