"""Folders of the form ``name=value``: levels that state the time of a partition, and others, which are columns. Pure.

A level of time is a day (``date=2026-03-01``, ``dt=20260301``), an hour below a day (``hour=03``), or a day in three levels
(``year=2026/month=03/day=01``). All other levels are columns of text. Names and values are percent-decoded, as Hive and Spark
encode them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote

from transforms.errors import DataError

#: The value that Hive writes for a null.
NULL_LEVEL = "__HIVE_DEFAULT_PARTITION__"
#: The levels of a file that is in no such folder.
NO_LEVELS: Mapping[str, str | None] = {}
#: The names of a level that states a whole day, maybe with its hour.
DAY_NAMES = ("date", "ds", "dt", "day", "event_date", "log_date", "partition_date")
#: The names of a level that states an hour below a day.
HOUR_NAMES = ("hour", "hr")

_DAYS = (
    re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[-T ](\d{2}))?", re.ASCII),
    re.compile(r"(\d{4})(\d{2})(\d{2})(\d{2})?", re.ASCII),
)
_HOUR = re.compile(r"\d{1,2}", re.ASCII)
_PART_VALUES = {"year": re.compile(r"\d{4}", re.ASCII), "month": _HOUR, "day": _HOUR}
_ISO_DAY_CHARACTERS = 10


def is_side_file(path: str) -> bool:
    """Whether a relative path is a side file of a writer, or in a folder of them: ``_SUCCESS``, ``_temporary``, ``.part.crc``.

    Those are names that begin with ``.`` or ``_``; a folder ``_name=value`` is a level.
    """
    *folders, name = path.split("/")
    return _is_side_name(name) or any(_is_side_name(folder) and "=" not in folder for folder in folders)


def is_side_folder(path: str) -> bool:
    """Whether a relative path is a folder of side files, or in one."""
    return any(_is_side_name(folder) and "=" not in folder for folder in path.split("/"))


def _is_side_name(name: str) -> bool:
    return name.startswith((".", "_"))


@dataclass(frozen=True, slots=True)
class Level:
    """One folder: its text, and the name and value that it states."""

    folder: str
    name: str
    value: str


@dataclass(frozen=True)
class FolderLevels:
    """The levels of a file's folders.

    Attributes:
        key: the key of the time partition that they state (:mod:`warehouse.tables.partitions`); empty if they state none.
        time: the levels of time, as the folders spell them.
        columns: the values of the other levels by name; None for a null.
    """

    key: str
    time: tuple[Level, ...] = ()
    columns: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def time_folder(self) -> str:
        """The folders of the levels of time."""
        return "/".join(level.folder for level in self.time)


def parse_levels(folder: str, where: str = "") -> FolderLevels:
    """The levels of a relative folder; other folders are left out.

    Raises :class:`DataError` for a level that is named twice or is not UTF-8.
    """
    levels = [level for part in folder.split("/") if (level := _level(part, where)) is not None]
    times = _time_levels(levels, where or folder)
    columns: dict[str, str | None] = {}
    for level in levels:
        if level in times:
            continue
        if level.name in columns:
            raise DataError("a level must be in a path once", where=where or folder, value=level.folder,
                            next_step="rename one of the folders")  # fmt: skip
        columns[level.name] = None if level.value == NULL_LEVEL else level.value
    return FolderLevels(_key(times), tuple(times), columns)


def _level(folder: str, where: str) -> Level | None:
    name, separator, value = folder.partition("=")
    if not separator or not name:
        return None
    try:
        return Level(folder, unquote(name, errors="strict"), unquote(value, errors="strict"))
    except UnicodeDecodeError as error:
        raise DataError("the name and value of a folder must be UTF-8, percent-encoded", where=where or folder, value=folder,
                        next_step="rename the folder") from error  # fmt: skip


def _time_levels(levels: Sequence[Level], where: str) -> list[Level]:
    """The levels that state a day or an hour; none if they state no day."""
    day = next((level for level in levels if level.name in DAY_NAMES and _day_of(level.value)), None)
    days = _day_in_parts(levels) if day is None else [day]
    if not days:
        return []
    hours = [level for level in levels if level.name in HOUR_NAMES]
    for level in hours:
        if not _HOUR.fullmatch(level.value):
            raise DataError("the hour of a folder must be a number", where=where, value=level.folder, allowed="hour=00 to hour=23",
                            next_step="rename the folder, or import the files by their time column: "
                            "headrace table import NAME FILES --time-column COLUMN")  # fmt: skip
    states_hour = day is not None and (_day_of(day.value) or ("", None))[1] is not None
    chosen = days if states_hour else [*days, *hours[:1]]
    return [level for level in levels if level in chosen]


def _day_in_parts(levels: Sequence[Level]) -> list[Level]:
    """The levels of year, month and day; none unless all are there."""
    found = [
        next((one for one in levels if one.name == name and pattern.fullmatch(one.value)), None)
        for name, pattern in _PART_VALUES.items()
    ]
    return [] if None in found else [level for level in found if level is not None]


def _day_of(value: str) -> tuple[str, int | None] | None:
    """The day that a value states, in ISO form, and its hour, if it states one."""
    found = next((match for pattern in _DAYS if (match := pattern.fullmatch(value))), None)
    if found is None:
        return None
    year, month, day, hour = found.groups()
    return f"{year}-{month}-{day}", None if hour is None else int(hour)


def _key(times: Sequence[Level]) -> str:
    """The partition key; folders in the layout of an import are their own key, whatever the digits of their hour."""
    named = {level.name: level.value for level in times}
    if [*named] in (["date"], ["date", "hour"]) and len(named["date"]) == _ISO_DAY_CHARACTERS:
        return "/".join(f"{name}={value}" for name, value in named.items())
    stated = next((found for level in times if level.name in DAY_NAMES and (found := _day_of(level.value))), None)
    hour = next((int(named[name]) for name in HOUR_NAMES if name in named), None)
    if stated is not None:
        return _spelled(stated[0], hour if stated[1] is None else stated[1])
    return _spelled(f"{named['year']}-{int(named['month']):02d}-{int(named['day']):02d}", hour) if named else ""


def _spelled(day: str, hour: int | None) -> str:
    return f"date={day}" if hour is None else f"date={day}/hour={hour:02d}"


def spell_like(example: Sequence[Level], start: datetime, *, hourly: bool) -> str:
    """The folders of the partition that begins at ``start``, spelled like the levels of another partition of the table."""
    parts = {"year": start.year, "month": start.month, "day": start.day}
    folders, has_hour = [], False
    for level in example:
        name, _, value = level.folder.partition("=")
        if level.name in DAY_NAMES and _day_of(level.value):
            dash = "-" if "-" in value else ""
            day = f"{start:%Y}{dash}{start:%m}{dash}{start:%d}"
            if states_hour := len(level.value) > len(day):
                # The character between the day and the hour may be encoded.
                day += f"{value[len(day) : -2]}{start:%H}"
            has_hour = has_hour or states_hour
            folders.append(f"{name}={day}")
        elif level.name in HOUR_NAMES:
            folders.append(f"{name}={start.hour:0{len(value)}d}")
            has_hour = True
        else:
            folders.append(f"{name}={parts[level.name]:0{len(value)}d}")
    if hourly and not has_hour:
        folders.append(f"hour={start:%H}")
    return "/".join(folders)
