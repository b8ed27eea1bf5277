"""The Gregorian calendar by whole numbers: days since 1970-01-01 to years, months and days, and back.

Years are counted from March, so that the leap day is the last of its year and the lengths of the months before it are
a straight line of 153 days in five months, rounded.
"""

from __future__ import annotations

from transforms.kernels.compiled import compiled
from transforms.operators.timestamps import CYCLE_DAYS, CYCLE_YEARS, DAYS_FROM_MARCH, DAYS_FROM_YEAR_ONE


@compiled
def _from_march(days: int) -> tuple[int, int]:
    """(the year that began in March, days since then)."""
    shifted = days + DAYS_FROM_MARCH
    cycle = shifted // CYCLE_DAYS
    day = shifted - cycle * CYCLE_DAYS
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    return cycle * CYCLE_YEARS + year, day - (365 * year + year // 4 - year // 100)


@compiled
def year_of(days: int) -> int:
    """The calendar year."""
    year, day = _from_march(days)
    return year + 1 if day >= 306 else year


@compiled
def month_and_day(days: int) -> tuple[int, int]:
    """(1 to 12, 1 to 31)."""
    _, day = _from_march(days)
    month = (5 * day + 2) // 153
    return month + 3 if month < 10 else month - 9, day - (153 * month + 2) // 5 + 1


@compiled
def days_before_year(year: int) -> int:
    """Days from 1970-01-01 to January 1st of the year."""
    before = year - 1
    return 365 * before + before // 4 - before // 100 + before // 400 - DAYS_FROM_YEAR_ONE
