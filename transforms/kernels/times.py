"""Kernels of the calendar fields. Division rounds down, so times before 1970 are right too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers
from transforms.kernels.calendar import (
    day_of,
    days_before_year,
    month_and_day,
    month_start,
    over,
    weekday,
    year_of,
)
from transforms.kernels.compiled import compiled, vectorised
from transforms.kernels.numbers import numbers
from transforms.kernels.spans import frozen
from transforms.operators.times import (
    DAY_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    SHIFT_SAFE_US,
    UNITS_MONTHS,
    UNITS_US,
    WEEK_START_US,
)

#: A stretch of 2**39 microseconds, six days, holds at most one change of any clock; no table has more than 2**16 of them.
_STRETCH_BITS, _TABLE_BITS = 39, 16


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
    return Numbers(_days_of_month(frozen(numbers(column))))


def month(column: Column) -> Column:
    """1 to 12."""
    return Numbers(_months(frozen(numbers(column))))


def day_of_year(column: Column) -> Column:
    """1 to 366."""
    return Numbers(_days_of_year(frozen(numbers(column))))


def year(column: Column) -> Column:
    """The year."""
    return Numbers(_years(frozen(numbers(column))))


def week_of_year(column: Column) -> Column:
    """1 to 53."""
    return Numbers(_weeks(frozen(numbers(column))))


def truncate_time(column: Column, *, unit: str) -> Column:
    """The start of the unit."""
    times = numbers(column)
    if unit in UNITS_MONTHS:
        starts = _month_starts(frozen(times), float(UNITS_MONTHS[unit]))
        return Numbers(starts, starts <= times)
    starts = _starts(frozen(times), UNITS_US[unit], WEEK_START_US if unit == "week" else 0)
    return Numbers(starts, starts <= times)


def age_secs(now: Column, then: Column) -> Column:
    """Seconds from then to now; a difference that int64 cannot hold is null."""
    ages, fits = _ages(frozen(numbers(now)), frozen(numbers(then)))
    return Numbers(ages, None if fits.all() else fits)


def in_zone(column: Column, *, zone: str, starts: tuple[int, ...], offsets_secs: tuple[int, ...]) -> Column:
    """The time on the wall clock; what a timestamp cannot hold is null."""
    times, clock = numbers(column), _clock(starts, offsets_secs)
    local = _shifted(frozen(times), clock.begins, clock.ahead, clock.stretch_bits, clock.passed)
    fits = (times < SHIFT_SAFE_US) & (times > -SHIFT_SAFE_US) | (
        (times ^ local) >= 0
    )  # far from zero, a change of sign is a wrap
    return Numbers(local, None if fits.all() else fits)


@vectorised
def _counted(times: Array, unit: int, many: int) -> Array:
    """Which of the ``many`` units of a larger unit, both of at most a day."""
    counts = np.empty(len(times), np.int64)
    for i in range(len(times)):
        of_day = float(times[i] - np.int64(day_of(times[i])) * DAY_US)
        passed = over(of_day, float(unit))
        counts[i] = np.int64(passed - many * over(passed, float(many)))
    return counts


@vectorised
def _weekdays(times: Array) -> Array:
    days = np.empty(len(times), np.int64)
    for i in range(len(times)):
        days[i] = np.int64(weekday(day_of(times[i])))
    return days


@vectorised
def _months(times: Array) -> Array:
    months = np.empty(len(times), np.int64)
    for i in range(len(times)):
        months[i] = np.int64(month_and_day(day_of(times[i]))[0])
    return months


@vectorised
def _days_of_month(times: Array) -> Array:
    days = np.empty(len(times), np.int64)
    for i in range(len(times)):
        days[i] = np.int64(month_and_day(day_of(times[i]))[1])
    return days


@vectorised
def _years(times: Array) -> Array:
    years = np.empty(len(times), np.int64)
    for i in range(len(times)):
        years[i] = np.int64(year_of(day_of(times[i])))
    return years


@vectorised
def _days_of_year(times: Array) -> Array:
    days = np.empty(len(times), np.int64)
    for i in range(len(times)):
        day = day_of(times[i])
        days[i] = np.int64(day - days_before_year(year_of(day)) + 1.0)
    return days


@vectorised
def _weeks(times: Array) -> Array:
    weeks = np.empty(len(times), np.int64)
    for i in range(len(times)):
        day = day_of(times[i])
        thursday = day + 3.0 - weekday(day)
        weeks[i] = np.int64(over(thursday - days_before_year(year_of(thursday)), 7.0) + 1.0)
    return weeks


@vectorised
def _ages(now: Array, then: Array) -> tuple[Array, Array]:
    ages, fits = np.empty(len(now), np.float64), np.empty(len(now), np.bool_)
    for i in range(len(now)):
        age = now[i] - then[i]
        ages[i] = float(age) / SECOND_US
        fits[i] = ((now[i] ^ then[i]) & (now[i] ^ age)) >= 0
    return ages, fits


@compiled
def _starts(times: Array, unit: int, origin: int) -> Array:
    starts = np.empty(len(times), np.int64)
    for i in range(len(times)):
        starts[i] = times[i] - (times[i] % unit - origin % unit) % unit
    return starts


@vectorised
def _month_starts(times: Array, months: float) -> Array:
    starts = np.empty(len(times), np.int64)
    for i in range(len(times)):
        starts[i] = np.int64(month_start(day_of(times[i]), months)) * DAY_US
    return starts


@dataclass(frozen=True, slots=True)
class _Clock:
    """The changes of a clock, and a table of their number before each of many short stretches of time."""

    begins: Array
    ahead: Array
    stretch_bits: int
    passed: Array


@lru_cache(maxsize=64)
def _clock(starts: tuple[int, ...], offsets_secs: tuple[int, ...]) -> _Clock:
    begins, ahead = np.array(starts, np.int64) * SECOND_US, np.array(offsets_secs, np.int64) * SECOND_US
    first, last = (begins[0], begins[-1]) if starts else (0, 0)
    bits = max(_STRETCH_BITS, (int(last) - int(first)).bit_length() - _TABLE_BITS)
    edges = np.arange(int(first) >> bits, (int(last) >> bits) + 1) << bits
    passed = np.searchsorted(begins, edges, side="left")
    return _Clock(frozen(begins), frozen(ahead), bits, frozen(passed))


@compiled
def _shifted(times: Array, begins: Array, ahead: Array, bits: int, passed: Array) -> Array:
    local = np.empty(len(times), np.int64)
    first = begins[0] >> bits if len(begins) else 0
    for i in range(len(times)):
        stretch = min(max((times[i] >> bits) - first, 0), len(passed) - 1)
        changes = passed[stretch]
        while changes < len(begins) and begins[changes] <= times[i]:
            changes += 1
        local[i] = times[i] + ahead[changes]
    return local
