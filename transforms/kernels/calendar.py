"""The Gregorian calendar: days since 1970-01-01 to years, months and days, and back, as whole float64 numbers.

Years are counted from March, so that the leap day is the last of its year and the lengths of the months before it are
a straight line of 153 days in five months, rounded. Floats, since several at a time can be divided; ``over`` is exact
as long as a whole number is below 2**50.
"""

from __future__ import annotations

import numpy as np

from transforms.kernels.compiled import vectorised
from transforms.operators.times import CYCLE_DAYS, CYCLE_YEARS, DAYS_FROM_MARCH, DAYS_FROM_YEAR_ONE

#: A day is this many times 2**13 microseconds.
_DAY_PARTS = 10_546_875.0


@vectorised
def day_of(time: int) -> float:
    """The day of a time in microseconds. A time without its last 13 bits fits float64 to the half."""
    day: float = np.floor(((time >> 13) + 0.5) / _DAY_PARTS)
    return day


@vectorised
def over(number: float, size: float) -> float:
    """``number // size``: half a unit more keeps what rounding does away from whole numbers."""
    whole: float = np.floor((number + 0.5) * (1.0 / size))
    return whole


@vectorised
def _from_march(days: float) -> tuple[float, float]:
    """(the year that began in March, days since then)."""
    shifted = days + DAYS_FROM_MARCH
    cycle = over(shifted, CYCLE_DAYS)
    day = shifted - cycle * CYCLE_DAYS
    year = over(day - over(day, 1460.0) + over(day, 36_524.0) - over(day, 146_096.0), 365.0)
    return cycle * CYCLE_YEARS + year, day - (365.0 * year + over(year, 4.0) - over(year, 100.0))


@vectorised
def year_of(days: float) -> float:
    """The calendar year."""
    year, day = _from_march(days)
    return year + 1.0 if day >= 306.0 else year


@vectorised
def month_and_day(days: float) -> tuple[float, float]:
    """(1 to 12, 1 to 31)."""
    _, day = _from_march(days)
    month = over(5.0 * day + 2.0, 153.0)
    return month + 3.0 if month < 10.0 else month - 9.0, day - over(153.0 * month + 2.0, 5.0) + 1.0


@vectorised
def days_before_year(year: float) -> float:
    """Days from 1970-01-01 to January 1st of the year."""
    before = year - 1.0
    return 365.0 * before + over(before, 4.0) - over(before, 100.0) + over(before, 400.0) - DAYS_FROM_YEAR_ONE


@vectorised
def month_start(days: float, months: float) -> float:
    """The first day of the run of ``months`` months, counted from January, that holds the month."""
    month, _ = month_and_day(days)
    first = over(month - 1.0, months) * months + 1.0
    from_march = first - 3.0 if first > 2.0 else first + 9.0
    year = year_of(days) if first > 2.0 else year_of(days) - 1.0
    of_year = over(153.0 * from_march + 2.0, 5.0)
    return 365.0 * year + over(year, 4.0) - over(year, 100.0) + over(year, 400.0) + of_year - DAYS_FROM_MARCH


@vectorised
def weekday(days: float) -> float:
    """0 for Monday to 6 for Sunday."""
    from_monday = days + 3.0
    return from_monday - 7.0 * over(from_monday, 7.0)
