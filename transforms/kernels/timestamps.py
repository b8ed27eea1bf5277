"""Kernels of the calendar fields. Division rounds down, so times before 1970 are right too."""

from __future__ import annotations

import numpy as np

from transforms.columns import Array, Column, Numbers
from transforms.kernels.calendar import days_before_year, month_and_day, year_of
from transforms.kernels.compiled import compiled
from transforms.kernels.numeric import numbers
from transforms.kernels.spans import frozen
from transforms.operators.timestamps import (
    DAY_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    SHIFT_SAFE_US,
    UNITS_US,
    WEEK_START_US,
)


def hour_of_day(column: Column) -> Column:
    """0 to 23."""
    return Numbers(_counted(frozen(numbers(column)), HOUR_US, 24))


def minute_of_hour(column: Column) -> Column:
    """0 to 59."""
    return Numbers(_counted(frozen(numbers(column)), MINUTE_US, 60))


def second_of_minute(column: Column) -> Column:
    """0 to 59."""
    return Numbers(_counted(frozen(numbers(column)), SECOND_US, 60))


def day_of_week(column: Column) -> Column:
    """0 for Monday to 6 for Sunday."""
    return Numbers(_weekdays(frozen(numbers(column))))


def is_weekend(column: Column) -> Column:
    """Saturday or Sunday."""
    return Numbers(_weekdays(frozen(numbers(column))) >= 5)


def day_of_month(column: Column) -> Column:
    """1 to 31."""
    return Numbers(_months_and_days(frozen(numbers(column)))[1])


def month(column: Column) -> Column:
    """1 to 12."""
    return Numbers(_months_and_days(frozen(numbers(column)))[0])


def day_of_year(column: Column) -> Column:
    """1 to 366."""
    return Numbers(_years_and_days(frozen(numbers(column)))[1])


def year(column: Column) -> Column:
    """The year."""
    return Numbers(_years_and_days(frozen(numbers(column)))[0])


def week_of_year(column: Column) -> Column:
    """1 to 53."""
    return Numbers(_weeks(frozen(numbers(column))))


def truncate_time(column: Column, *, unit: str) -> Column:
    """The start of the unit."""
    times = numbers(column)
    starts = _starts(frozen(times), UNITS_US[unit], WEEK_START_US if unit == "week" else 0)
    return Numbers(starts, starts <= times)


def age_secs(now: Column, then: Column) -> Column:
    """Seconds from then to now; a difference that int64 cannot hold is null."""
    a, b = numbers(now), numbers(then)
    ages = a - b
    fits = ((a ^ b) & (a ^ ages)) >= 0
    return Numbers(ages.astype(np.float64) / SECOND_US, None if fits.all() else fits)


def in_zone(column: Column, *, zone: str, starts: tuple[int, ...], offsets_secs: tuple[int, ...]) -> Column:
    """The time on the wall clock; what a timestamp cannot hold is null."""
    times = numbers(column)
    begins = frozen(np.array(starts, np.int64) * SECOND_US)
    ahead = frozen(np.array(offsets_secs, np.int64) * SECOND_US)
    local = _shifted(frozen(times), begins, ahead)
    fits = (times < SHIFT_SAFE_US) & (times > -SHIFT_SAFE_US) | (
        (times ^ local) >= 0
    )  # far from zero, a change of sign is a wrap
    return Numbers(local, None if fits.all() else fits)


@compiled
def _counted(times: Array, unit: int, many: int) -> Array:
    counts = np.empty(len(times), np.int64)
    for i in range(len(times)):
        counts[i] = times[i] // unit % many
    return counts


@compiled
def _weekdays(times: Array) -> Array:
    days = np.empty(len(times), np.int64)
    for i in range(len(times)):
        days[i] = (times[i] // DAY_US + 3) % 7
    return days


@compiled
def _months_and_days(times: Array) -> tuple[Array, Array]:
    months, days = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
    for i in range(len(times)):
        months[i], days[i] = month_and_day(times[i] // DAY_US)
    return months, days


@compiled
def _years_and_days(times: Array) -> tuple[Array, Array]:
    years, days = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
    for i in range(len(times)):
        day = times[i] // DAY_US
        years[i] = year_of(day)
        days[i] = day - days_before_year(years[i]) + 1
    return years, days


@compiled
def _weeks(times: Array) -> Array:
    weeks = np.empty(len(times), np.int64)
    for i in range(len(times)):
        day = times[i] // DAY_US
        thursday = day + 3 - (day + 3) % 7
        weeks[i] = (thursday - days_before_year(year_of(thursday))) // 7 + 1
    return weeks


@compiled
def _starts(times: Array, unit: int, origin: int) -> Array:
    starts = np.empty(len(times), np.int64)
    for i in range(len(times)):
        starts[i] = times[i] - (times[i] % unit - origin % unit) % unit
    return starts


@compiled
def _shifted(times: Array, begins: Array, ahead: Array) -> Array:
    local = np.empty(len(times), np.int64)
    passed = 0
    for i in range(len(times)):
        # Neighbouring events mostly lie between the same two changes.
        before = passed > 0 and times[i] < begins[passed - 1]
        if before or (passed < len(begins) and times[i] >= begins[passed]):
            passed = np.searchsorted(begins, times[i], side="right")
        local[i] = times[i] + ahead[passed]
    return local
