"""Twins of the calendar fields, by the whole numbers of :mod:`transforms.kernels.calendar`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from transforms.operators.times import (
    CYCLE_DAYS,
    CYCLE_YEARS,
    DAY_US,
    DAYS_FROM_MARCH,
    DAYS_FROM_YEAR_ONE,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    SHIFT_SAFE_US,
    UNITS_MONTHS,
    UNITS_US,
    WEEK_START_US,
)
from transforms.twins import floats
from transforms.twins.tensors import DenseTensor

Tensor = Any


def hour_of_day(time: DenseTensor) -> DenseTensor:
    """0 to 23."""
    return _counted(time, HOUR_US, 24)


def minute_of_hour(time: DenseTensor) -> DenseTensor:
    """0 to 59."""
    return _counted(time, MINUTE_US, 60)


def second_of_minute(time: DenseTensor) -> DenseTensor:
    """0 to 59."""
    return _counted(time, SECOND_US, 60)


def day_of_week(time: DenseTensor) -> DenseTensor:
    """0 for Monday to 6 for Sunday."""
    return DenseTensor(_weekday(_days(time)))


def is_weekend(time: DenseTensor) -> DenseTensor:
    """Saturday or Sunday."""
    return DenseTensor(_weekday(_days(time)) >= 5)


def day_of_month(time: DenseTensor) -> DenseTensor:
    """1 to 31."""
    _, day = _from_march(_days(time))
    return DenseTensor(day - (153 * _march_month(day) + 2) // 5 + 1)


def month(time: DenseTensor) -> DenseTensor:
    """1 to 12."""
    _, day = _from_march(_days(time))
    from_march = _march_month(day)
    return DenseTensor(tf.where(from_march < 10, from_march + 3, from_march - 9))


def year(time: DenseTensor) -> DenseTensor:
    """The year."""
    return DenseTensor(_year(_days(time)))


def day_of_year(time: DenseTensor) -> DenseTensor:
    """1 to 366."""
    days = _days(time)
    return DenseTensor(days - _days_before_year(_year(days)) + 1)


def week_of_year(time: DenseTensor) -> DenseTensor:
    """1 to 53."""
    days = _days(time)
    thursday = days + 3 - _weekday(days)
    return DenseTensor((thursday - _days_before_year(_year(thursday))) // 7 + 1)


def truncate_time(time: DenseTensor, *, unit: str) -> DenseTensor:
    """The start of the unit."""
    if unit in UNITS_MONTHS:
        start = _month_start(_days(time), UNITS_MONTHS[unit]) * DAY_US
        return DenseTensor(start, start <= time.values)
    size, origin = UNITS_US[unit], WEEK_START_US if unit == "week" else 0
    start = time.values - (time.values % size - origin % size) % size
    return DenseTensor(start, start <= time.values)


def age_secs(now: DenseTensor, then: DenseTensor) -> DenseTensor:
    """Seconds from then to now; a difference that int64 cannot hold is null."""
    age = now.values - then.values
    crossed = tf.bitwise.bitwise_xor(now.values, then.values) & tf.bitwise.bitwise_xor(now.values, age)
    return DenseTensor(floats.divide(tf.cast(age, tf.float64), float(SECOND_US)), crossed >= 0)


def in_zone(time: DenseTensor, *, zone: str, starts: tuple[int, ...], offsets_secs: tuple[int, ...]) -> DenseTensor:
    """The time on the wall clock; what a timestamp cannot hold is null."""
    times = time.values
    begins = tf.constant([start * SECOND_US for start in starts], tf.int64)
    ahead = tf.constant([offset * SECOND_US for offset in offsets_secs], tf.int64)
    local = times + tf.gather(ahead, tf.searchsorted(begins, times, side="right"))
    near = (times < SHIFT_SAFE_US) & (times > -SHIFT_SAFE_US)
    return DenseTensor(local, near | (tf.bitwise.bitwise_xor(times, local) >= 0))


def _counted(time: DenseTensor, unit: int, many: int) -> DenseTensor:
    return DenseTensor(time.values // unit % many)


def _days(time: DenseTensor) -> Tensor:
    return time.values // DAY_US


def _weekday(days: Tensor) -> Tensor:
    return (days + 3) % 7


def _from_march(days: Tensor) -> tuple[Tensor, Tensor]:
    """(the year that began in March, days since then)."""
    shifted = days + DAYS_FROM_MARCH
    cycle = shifted // CYCLE_DAYS
    day = shifted - cycle * CYCLE_DAYS
    years = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    return cycle * CYCLE_YEARS + years, day - (365 * years + years // 4 - years // 100)


def _march_month(day: Tensor) -> Tensor:
    return (5 * day + 2) // 153


def _month_start(days: Tensor, months: int) -> Tensor:
    """The first day of the run of months, counted from January, that holds the date."""
    year, day = _from_march(days)
    from_march = _march_month(day)
    first = tf.where(from_march < 10, from_march + 2, from_march - 10) // months * months  # 0 is January
    year = tf.where(day >= 306, year + 1, year)
    year = tf.where(first >= 2, year, year - 1)
    from_march = tf.where(first >= 2, first - 2, first + 10)
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * from_march + 2) // 5 - DAYS_FROM_MARCH


def _year(days: Tensor) -> Tensor:
    from_march, day = _from_march(days)
    return tf.where(day >= 306, from_march + 1, from_march)


def _days_before_year(years: Tensor) -> Tensor:
    before = years - 1
    return 365 * before + before // 4 - before // 100 + before // 400 - DAYS_FROM_YEAR_ONE
