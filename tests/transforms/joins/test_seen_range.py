"""The range of times that events may see holds every row that changes a value, for all rules of windows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from transforms.joins.evaluation import joined_column
from transforms.joins.visibility import seen_range

_DAY = 86_400 * 10**6


@pytest.mark.parametrize(
    "expression",
    [
        hr.table("t").by(hr.int64("k")).count(),
        hr.table("t").by(hr.int64("k")).count(window="3h"),
        hr.table("t", available_after="2h").by(hr.int64("k")).count(window="3h"),
        hr.table("t", including_equal=True).by(hr.int64("k")).count(window="0s"),
        hr.table("t").by(hr.int64("k")).count(window="1d", hop="5h"),
        hr.table("t", as_of="day", zone="Europe/Berlin").by(hr.int64("k")).count(window="1d"),
    ],
)
def test_rows_outside_change_nothing_and_the_range_is_no_wider_than_it_must_be(expression):
    definition = expression.node.definition
    draw = np.random.default_rng(1)
    times = np.sort(draw.integers(100 * _DAY, 103 * _DAY, 40))
    events = pa.table({"k": np.zeros(40, np.int64), "at": pa.array(times).cast(pa.timestamp("us"))})
    low, high = seen_range(definition, int(times[0]), int(times[-1]))
    around = [low - 1, low, (max(low, 99 * _DAY) + high) // 2, high, high + 1]
    around = [one for one in around if one > -(1 << 62)]

    def counted(rows: list[int]) -> list[int]:
        other = pa.table(
            {"k": np.zeros(len(rows), np.int64), "at": pa.array(rows, pa.int64()).cast(pa.timestamp("us"))}
        )
        return joined_column(definition, events, "at", other, "at").to_pylist()

    inside = [one for one in around if low <= one <= high]
    assert counted(around) == counted(inside)
    assert any(counted(inside)) or definition.window_micros == 0
