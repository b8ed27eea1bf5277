"""``hr.between``: a range of time, or of numbers."""

from __future__ import annotations

import math
from typing import overload

from transforms.time_range import Moment, TimeRange, moment
from transforms.value_range import ValueRange


@overload
def between(start: float, end: float) -> ValueRange: ...
@overload
def between(start: Moment, end: Moment) -> TimeRange: ...
def between(start: Moment | float, end: Moment | float) -> TimeRange | ValueRange:
    """The half-open range of time ``[start, end)``, as in ``between("2026-01-01", "2026-01-08")``; of two numbers the range with both ends.

    Dates, times or their ISO 8601 text; without a time zone they are UTC. Raises :class:`~transforms.errors.InputError`.

    >>> print(between("2026-01-01", "2026-01-08"))
    2026-01-01 .. 2026-01-08
    >>> print(between(0, 1))
    0 to 1
    """
    if _is_number(start) and _is_number(end):
        return ValueRange(_float(start), _float(end))  # type: ignore[arg-type]
    return TimeRange(moment(start), moment(end))  # type: ignore[arg-type]


def _float(value: float) -> float:
    """The number as a float; infinite for an integer beyond all of them, which the range refuses."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
