"""A stated range of time, as full-pass operators are given one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime

from transforms.errors import InputError

Moment = str | date | datetime


@dataclass(frozen=True, slots=True)
class TimeRange:
    """``[start, end)`` in UTC. It covers the partitions of a table that start in it."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if not self.start < self.end:
            raise InputError("a range ends after it starts", value=str(self), allowed="start < end, the end left out",
                             next_step='between("2026-01-01", "2026-01-08") is the seven days from the 1st to the 7th')  # fmt: skip

    def __str__(self) -> str:
        return f"{moment_text(self.start)} .. {moment_text(self.end)}"


def between(start: Moment, end: Moment) -> TimeRange:
    """The half-open range from ``start`` up to, not including, ``end``: ``between("2026-01-01", "2026-01-08")``.

    Dates, times or their ISO 8601 text; what names no time zone is UTC. Raises :class:`InputError`.
    """
    return TimeRange(moment(start), moment(end))


def moment(value: Moment) -> datetime:
    """A date, time or ISO 8601 text as a time in UTC. Raises :class:`InputError`."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise InputError("not a date or a time", value=value, allowed="ISO 8601, such as 2026-01-01 or "
                             "2026-01-01T13:00") from error  # fmt: skip
    if not isinstance(value, date):
        raise InputError("not a date or a time", value=value, allowed="a date, a datetime or ISO 8601 text")
    whole = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    return whole.replace(tzinfo=UTC) if whole.tzinfo is None else whole.astimezone(UTC)


def moment_text(value: datetime) -> str:
    """The one spelling of a moment in parameters: the day alone at midnight, else the time to what is not zero."""
    if (value.hour, value.minute, value.second, value.microsecond) == (0, 0, 0, 0):
        return value.date().isoformat()
    return value.replace(tzinfo=None).isoformat(timespec="auto") + "Z"
