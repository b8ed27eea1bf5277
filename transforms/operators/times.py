"""Calendar fields of a timestamp, and time between two. Timestamps are microseconds since 1970-01-01 in UTC, a Thursday.

Fields are those of UTC, or of the wall clock of a zone after ``in_zone``. The calendar is the proleptic Gregorian one of
ISO 8601.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Param, Scalar
from transforms.operators.signatures import INT64_MAX, INT64_MIN, always
from transforms.types import ColumnType, Dense, DType

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
WEEK_US = 7 * DAY_US
#: From Monday, 1969-12-29.
WEEK_START_US = -3 * DAY_US
UNITS_US = {"second": SECOND_US, "minute": MINUTE_US, "hour": HOUR_US, "day": DAY_US, "week": WEEK_US}
#: Units of whole months, whose lengths differ.
UNITS_MONTHS = {"month": 1, "quarter": 3, "year": 12}
UNITS = (*UNITS_US, *UNITS_MONTHS)

#: The calendar repeats after 400 years, which are this many days and whole weeks.
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097
#: From 0000-03-01 to 1970-01-01, and from 0001-01-01.
DAYS_FROM_MARCH, DAYS_FROM_YEAR_ONE = 719_468, 719_162
#: Nothing nearer to the epoch than this leaves int64 by a shift of a day.
SHIFT_SAFE_US = 2**62

_KERNELS = "transforms.kernels.times"
_TWINS = "transforms.twins.times"
_TIMES = frozenset({DType.TIMESTAMP})
_EPOCH = datetime.date(1970, 1, 1)


def _date(time: int) -> tuple[datetime.date, int]:
    """A date of the same place in the calendar's cycle, and by how many years it is off."""
    cycles, days = divmod(time // DAY_US, CYCLE_DAYS)
    return _EPOCH + datetime.timedelta(days), cycles * CYCLE_YEARS


def _year(time: int) -> int:
    date, years = _date(time)
    return date.year + years


def _truncate_time(time: int, *, unit: str) -> int | None:
    origin = WEEK_START_US if unit == "week" else 0
    start = _month_start(time, UNITS_MONTHS[unit]) if unit in UNITS_MONTHS else time - (time - origin) % UNITS_US[unit]
    return start if start >= INT64_MIN else None


def _month_start(time: int, months: int) -> int:
    """The start of the run of months, counted from January, that holds the time."""
    date, _ = _date(time)
    first = date.replace(month=(date.month - 1) // months * months + 1, day=1)
    return (time // DAY_US - (date - first).days) * DAY_US


def _age_secs(now: int, then: int) -> float | None:
    age = now - then
    return float(age) / SECOND_US if INT64_MIN <= age <= INT64_MAX else None


def _unit(value: Scalar) -> str:
    return "" if value in UNITS else ", ".join(UNITS)


#: 2025-11-21, a Friday, at 09:31:26 UTC; one microsecond before 1970; no time.
_EXAMPLE = [1_763_717_486_123_456, -1, None]


def _field(
    name: str,
    summary: str,
    result: ColumnType,
    reference: Callable[[int], int | bool],
    gives: Sequence[int | None],
    cost_ns: float = 1,
) -> Operator:
    return Operator(
        name=name,
        version=1,
        family="time",
        summary=summary,
        args=(Arg("time", dense=_TIMES),),
        result=always(result),
        reference=reference,
        kernel=Imported(_KERNELS, name),
        cost_ns=cost_ns,
        lifts=True,
        twin=Imported(_TWINS, name),
        example=Example(f'hr.timestamp("time").{name}()', {"time": _EXAMPLE}, gives),
    )


def _below(buckets: int) -> Dense:
    return Dense(DType.INT64, buckets)


HOUR_OF_DAY = _field(
    "hour_of_day", "The hour, 0 to 23, in UTC.", _below(24), lambda time: time % DAY_US // HOUR_US, [9, 23, None]
)
MINUTE_OF_HOUR = _field(
    "minute_of_hour", "The minute, 0 to 59.", _below(60), lambda time: time % HOUR_US // MINUTE_US, [31, 59, None]
)
SECOND_OF_MINUTE = _field(
    "second_of_minute", "The second, 0 to 59.", _below(60), lambda time: time % MINUTE_US // SECOND_US, [26, 59, None]
)
DAY_OF_WEEK = _field(
    "day_of_week", "The day of the week in UTC, 0 for Monday to 6 for Sunday.", _below(7),
    lambda time: (time // DAY_US + 3) % 7, [4, 2, None],
)  # fmt: skip
IS_WEEKEND = _field(
    "is_weekend", "Whether the day is a Saturday or a Sunday.", Dense(DType.BOOL),
    lambda time: _date(time)[0].weekday() >= 5, [False, False, None],
)  # fmt: skip
DAY_OF_MONTH = _field(
    "day_of_month", "The day of the month, 1 to 31.", _below(32), lambda time: _date(time)[0].day, [21, 31, None], 2
)
DAY_OF_YEAR = _field(
    "day_of_year", "The day of the year, 1 to 366.", _below(367),
    lambda time: _date(time)[0].timetuple().tm_yday, [325, 365, None], 2,
)  # fmt: skip
WEEK_OF_YEAR = _field(
    "week_of_year", "The week of ISO 8601, 1 to 53: weeks begin on Monday, and week 1 holds January 4th.", _below(54),
    lambda time: _date(time)[0].isocalendar().week, [47, 1, None], 3,
)  # fmt: skip
MONTH = _field("month", "The month, 1 to 12.", _below(13), lambda time: _date(time)[0].month, [11, 12, None], 2)
YEAR = _field("year", "The year; 0 is the year before year 1.", Dense(DType.INT64), _year, [2025, 1969, None], 2)

TRUNCATE_TIME = Operator(
    name="truncate_time",
    version=1,
    family="time",
    summary="The start of the unit that the time lies in: in UTC, or by the wall clock after in_zone. A start before what a "
    "timestamp can hold is null.",
    args=(Arg("time", dense=_TIMES),),
    result=always(Dense(DType.TIMESTAMP)),
    reference=_truncate_time,
    kernel=Imported(_KERNELS, "truncate_time"),
    params=(Param("unit", str, check=_unit, doc=f"{', '.join(UNITS)}; a week begins on Monday"),),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=4,
    lifts=True,
    twin=Imported(_TWINS, "truncate_time"),
    example=Example(
        'hr.timestamp("time").truncate_time("hour")', {"time": _EXAMPLE}, [1_763_715_600_000_000, -3_600_000_000, None]
    ),
)

AGE_SECS = Operator(
    name="age_secs",
    version=1,
    family="time",
    summary="Seconds from then to now, negative if then is later. Times more than 292,277 years apart give null.",
    args=(Arg("now", dense=_TIMES), Arg("then", dense=_TIMES)),
    result=always(Dense(DType.FLOAT64)),
    reference=_age_secs,
    kernel=Imported(_KERNELS, "age_secs"),
    cost_ns=1,
    lifts=True,
    twin=Imported(_TWINS, "age_secs"),
    example=Example(
        'hr.timestamp("time").age_secs(since=hr.timestamp("signed_up"))',
        {"time": [10_000_000, 0, None], "signed_up": [2_500_000, 1_000_000, 0]},
        [7.5, -1.0, None],
    ),
)

OPERATORS = (
    HOUR_OF_DAY,
    MINUTE_OF_HOUR,
    SECOND_OF_MINUTE,
    DAY_OF_WEEK,
    IS_WEEKEND,
    DAY_OF_MONTH,
    DAY_OF_YEAR,
    WEEK_OF_YEAR,
    MONTH,
    YEAR,
    TRUNCATE_TIME,
    AGE_SECS,
)
