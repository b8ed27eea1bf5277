"""Kernels of the calendar fields. Division rounds down, so times before 1970 are right too."""

from __future__ import annotations

import numpy as np

from transforms.columns import Array, Column, Numbers
from transforms.kernels.compiled import compiled
from transforms.kernels.numeric import numbers
from transforms.kernels.spans import frozen
from transforms.operators.timestamps import DAY_US, HOUR_US


def hour_of_day(column: Column) -> Column:
    """0 to 23."""
    return Numbers(_hours(frozen(numbers(column))))


def day_of_week(column: Column) -> Column:
    """0 for Monday to 6 for Sunday."""
    return Numbers(_weekdays(frozen(numbers(column))))


@compiled
def _hours(times: Array) -> Array:
    hours = np.empty(len(times), np.int64)
    for i in range(len(times)):
        hours[i] = times[i] // HOUR_US % 24
    return hours


@compiled
def _weekdays(times: Array) -> Array:
    days = np.empty(len(times), np.int64)
    for i in range(len(times)):
        days[i] = (times[i] // DAY_US + 3) % 7
    return days
