"""Counting reads by age, expected requests, and the time for which storing pays."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import InputError
from warehouse.planning.forecast import (
    AGE_DAYS,
    NO_HOLD,
    PRIOR_READS_PER_DAY,
    AgedReads,
    Arrival,
    TimedRead,
    best_hold,
    bucket_of,
    count_reads,
    spans,
)

DAY = 86_400.0
EVER = (float("-inf"), float("inf"))


def test_buckets_start_at_their_ages() -> None:
    assert [bucket_of(age) for age in (-1.0, 0.0, 0.9, 1.0, 3.9, 4.0, 1e4)] == [0, 0, 0, 1, 2, 3, len(AGE_DAYS) - 1]


def test_reads_are_counted_by_the_age_of_the_data() -> None:
    """Ten days of data; every day's data is read by two models on its day, and all of it by a third one on the last day."""
    arrivals = [Arrival(day * DAY, day * DAY, 100) for day in range(10)]
    reads = [TimedRead(name, day * DAY, (day + 1) * DAY, day * DAY) for day in range(10) for name in ("a", "b")]
    reads.append(TimedRead("c", *EVER, 9 * DAY))
    found = count_reads(arrivals, reads, dict.fromkeys("abc", 0.0), 10 * DAY, 0.0)
    assert found.days[:4] == (10.0, 9.0, 15.0, 18.0)
    assert found.reads[:4] == (21.0, 1.0, 2.0, 4.0)
    assert found.by_model["a"][:2] == (10, 0)
    assert found.by_model["c"][:4] == (1, 1, 1, 1)
    new, old = found.reads_per_day[0], found.reads_per_day[3]
    assert new == pytest.approx(2.0, abs=0.2)
    assert old < 0.3
    assert found.requests_per_day(["a"])[0] > 3 * found.requests_per_day(["c"])[0]
    assert found.share(["a", "b", "c"], 0) == pytest.approx(1.0)
    assert found.requests_per_day(["c"])[3] > found.requests_per_day(["a"])[3]


def test_a_young_model_is_expected_to_read_as_the_others() -> None:
    """It has no reads yet, but was observed for no time either."""
    reads = [TimedRead("old", day * DAY, (day + 1) * DAY, day * DAY) for day in range(20)]
    arrivals = [Arrival(day * DAY, day * DAY, 100) for day in range(20)]
    found = count_reads(arrivals, reads, {"old": 0.0, "idle": 0.0, "young": 20 * DAY}, 20 * DAY, 0.0)
    old, idle, young = (found.share([name], 0) for name in ("old", "idle", "young"))
    assert old > young > 3 * idle


def test_data_that_is_gone_and_reads_before_the_window_do_not_count() -> None:
    found = count_reads(
        [Arrival(0.0, 0.0, 5)], [TimedRead("a", 10 * DAY, 11 * DAY, 0.0)], {"a": 0.0}, 40 * DAY, 30 * DAY
    )
    assert sum(found.reads) == 0
    assert found.days == (0, 0, 0, 0, 0, 2.0, 8.0, 0)


def test_without_reads_every_live_model_is_expected_to_read() -> None:
    assert AgedReads().reads_per_day == (PRIOR_READS_PER_DAY,) * len(AGE_DAYS)
    two = count_reads([], [], {"a": 0.0, "b": 0.0}, 0.0, 0.0)
    assert two.requests_per_day(["a"]) == pytest.approx([PRIOR_READS_PER_DAY] * len(AGE_DAYS))
    assert two.requests_per_day(["a", "b"]) == pytest.approx([2 * PRIOR_READS_PER_DAY] * len(AGE_DAYS))


rates = st.lists(st.floats(0, 50), min_size=len(AGE_DAYS), max_size=len(AGE_DAYS))


@given(rates, st.integers(0, len(AGE_DAYS) - 1), st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0.5, 90))
def test_the_hold_is_the_best_of_all_times(
    found: list[float], bucket: int, saving: float, price: float, horizon: float
) -> None:
    hold = best_hold(found, bucket, saving_secs=saving, day_secs=price, horizon_days=horizon)
    held = requests = best = 0.0
    for part, days in spans(bucket, horizon):
        held, requests = held + days, requests + found[part] * days
        best = max(best, requests * saving - held * price)
    assert hold.saved_secs == best
    assert (hold == NO_HOLD) == (best == 0)
    dearer = best_hold(found, bucket, saving_secs=saving, day_secs=price * 2 + 1e-9, horizon_days=horizon)
    assert dearer.days <= hold.days


@given(st.integers(0, len(AGE_DAYS) - 1), st.floats(0.01, 200))
def test_spans_cover_the_horizon(bucket: int, horizon: float) -> None:
    found = spans(bucket, horizon)
    assert math.isclose(sum(days for _, days in found), horizon)
    assert [part for part, _ in found] == list(range(bucket, bucket + len(found)))


@pytest.mark.parametrize("horizon", [0.0, -1.0, math.inf, math.nan])
def test_a_horizon_is_checked(horizon: float) -> None:
    with pytest.raises(InputError, match="horizon_days"):
        spans(0, horizon)
