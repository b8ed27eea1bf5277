"""Moments as text, and the ranges of time of full-pass operators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from transforms.errors import InputError

Moment = str | date | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """``[start, end)`` in UTC. It covers the partitions of a table that start in it."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if not self.start < self.end:
            raise InputError("the end of a range must be after its start", value=str(self), allowed="start < end, the end left out",
                             next_step='between("2026-01-01", "2026-01-08") is the seven days from the 1st to the 7th')  # fmt: skip

    def __str__(self) -> str:
        return f"{moment_text(self.start)} .. {moment_text(self.end)}"


def moment(value: Moment) -> datetime:
    """A date, time or ISO 8601 text as a time in UTC. Raises :class:`InputError`."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise InputError("a moment must be a date or a time", value=value, allowed="ISO 8601, such as 2026-01-01 or "
                             "2026-01-01T13:00") from error  # fmt: skip
    if not isinstance(value, date):
        raise InputError(
            "a moment must be a date or a time", value=value, allowed="a date, a datetime or ISO 8601 text"
        )
    whole = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    try:
        return whole.replace(tzinfo=UTC) if whole.tzinfo is None else whole.astimezone(UTC)
    except OverflowError:
        raise InputError("a moment must lie in the years 1 to 9999 of UTC", value=str(value)) from None


def has_offset(value: Moment) -> bool:
    """Whether a moment that :func:`moment` takes has a time zone."""
    written = datetime.fromisoformat(value) if isinstance(value, str) else value
    return isinstance(written, datetime) and written.tzinfo is not None


def microseconds(value: Moment) -> int:
    """A moment as a timestamp: microseconds since 1970-01-01 in UTC, truncated."""
    return (moment(value) - _EPOCH) // _MICROSECOND


def timestamp_text(time: int) -> str:
    """The one spelling of a timestamp in microseconds; the number itself outside Python's years 1 to 9999."""
    try:
        return repr(moment_text(_EPOCH + timedelta(microseconds=time)))
    except OverflowError:
        return str(time)


def moment_text(value: datetime) -> str:
    """The one spelling of a moment in parameters: the day, and the time without trailing zeros if it is not midnight."""
    if (value.hour, value.minute, value.second, value.microsecond) == (0, 0, 0, 0):
        return value.date().isoformat()
    return value.replace(tzinfo=None).isoformat(timespec="auto") + "Z"
