"""Methods of expressions over timestamps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from transforms.errors import InputError
from transforms.expressions.methods.numbers import NumberMethods

_DAY_SECS = 86_400.0
#: A minute, 5 minutes, an hour, 6 hours, a day, 7, 30 and 90 days.
RECENCY_SECS = (60.0, 300.0, 3600.0, 21_600.0, _DAY_SECS, 7 * _DAY_SECS, 30 * _DAY_SECS, 90 * _DAY_SECS)


class TimeMethods(NumberMethods):
    """Timestamps, whose ages are numbers."""

    __slots__ = ()

    def in_zone(self, zone: str) -> Self:
        """The wall clock time of an IANA time zone, such as ``"Europe/Berlin"``; calendar fields are then local."""
        from transforms.operators.zones import clock_changes

        if not isinstance(zone, str):
            raise InputError("the name of a time zone must be text", where="in_zone", value="None" if zone is None else zone,
                             next_step="name a zone of the IANA database, such as Europe/Berlin")  # fmt: skip
        starts, offsets_secs = clock_changes(zone)
        return self._apply("in_zone", zone=zone, starts=starts, offsets_secs=offsets_secs)

    def hour_of_day(self) -> Self:
        """0 to 23."""
        return self._apply("hour_of_day")

    def day_of_week(self) -> Self:
        """0 (Monday) to 6."""
        return self._apply("day_of_week")

    def minute_of_hour(self) -> Self:
        """0 to 59."""
        return self._apply("minute_of_hour")

    def second_of_minute(self) -> Self:
        """0 to 59."""
        return self._apply("second_of_minute")

    def is_weekend(self) -> Self:
        """Saturday or Sunday."""
        return self._apply("is_weekend")

    def day_of_month(self) -> Self:
        """1 to 31."""
        return self._apply("day_of_month")

    def day_of_year(self) -> Self:
        """1 to 366."""
        return self._apply("day_of_year")

    def week_of_year(self) -> Self:
        """The week of ISO 8601, 1 to 53."""
        return self._apply("week_of_year")

    def month(self) -> Self:
        """1 to 12."""
        return self._apply("month")

    def year(self) -> Self:
        """The year."""
        return self._apply("year")

    def truncate_time(self, unit: str) -> Self:
        """The start of the second, minute, hour, day, week, month, quarter or year."""
        return self._apply("truncate_time", unit=unit)

    def age_secs(self, since: Self) -> Self:
        """Seconds from ``since`` to this; a list of times gives an age for each."""
        return self._apply("age_secs", since)

    def recency_buckets(self, since: Self, boundaries_secs: Sequence[float] = RECENCY_SECS) -> Self:
        """The id of how long ago ``since`` was: under a minute, 5 minutes, an hour, 6, a day, 7, 30, 90, or longer."""
        return self.age_secs(since).bucketize(boundaries_secs)
