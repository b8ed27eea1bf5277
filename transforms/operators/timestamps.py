"""Calendar fields of a timestamp, in UTC. Timestamps are microseconds since 1970-01-01, which was a Thursday."""

from __future__ import annotations

from transforms.operators.declaration import Arg, KernelAt, Operator
from transforms.operators.signatures import always
from transforms.types import Dense, DType

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US

_KERNELS = "transforms.kernels.timestamps"
_TIME = (Arg("time", dense=frozenset({DType.TIMESTAMP})),)

HOUR_OF_DAY = Operator(
    name="hour_of_day",
    version=1,
    family="time",
    summary="The hour, 0 to 23, in UTC.",
    args=_TIME,
    result=always(Dense(DType.INT64, 24)),
    reference=lambda time: time % DAY_US // HOUR_US,
    kernel=KernelAt(_KERNELS, "hour_of_day"),
    cost_ns=3,
)

DAY_OF_WEEK = Operator(
    name="day_of_week",
    version=1,
    family="time",
    summary="The day of the week in UTC, 0 for Monday to 6 for Sunday.",
    args=_TIME,
    result=always(Dense(DType.INT64, 7)),
    reference=lambda time: (time // DAY_US + 3) % 7,
    kernel=KernelAt(_KERNELS, "day_of_week"),
    cost_ns=3,
)

OPERATORS = (HOUR_OF_DAY, DAY_OF_WEEK)
