"""Starts of days by the clocks of zones, minute by minute."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from importlib import resources

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import DataError, InputError
from transforms.joins.definition import DayClock
from transforms.joins.visibility import NO_TIME, day_starts, micros
from transforms.operators.zones import clock_changes

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def started(zone: str, times: list[datetime]) -> list[datetime]:
    clock = DayClock(zone, *clock_changes(zone))
    found = day_starts(clock, np.array([(one - EPOCH) // timedelta(microseconds=1) for one in times], np.int64))
    return [EPOCH + timedelta(microseconds=int(one)) for one in found]


@pytest.mark.parametrize(
    ("zone", "around"),
    [
        ("UTC", "2026-03-29T00:00"),
        ("Europe/Berlin", "2026-03-29T01:00"),
        ("Europe/Berlin", "2026-10-25T01:00"),
        ("Asia/Kathmandu", "2026-01-01T18:15"),
        ("America/Sao_Paulo", "2018-11-04T03:00"),  # the clock goes from 00:00 to 01:00
        ("America/Sao_Paulo", "2018-02-18T02:00"),  # from 24:00 back to 23:00
        ("America/Havana", "2025-11-02T05:00"),  # from 01:00 back to 00:00
        ("America/St_Johns", "2006-10-29T02:31"),  # from 00:01 back to 23:01
        ("Pacific/Apia", "2011-12-30T10:00"),  # a day is left out
        ("America/Juneau", "1867-10-19T00:00"),  # a day is there twice
    ],
)
def test_a_day_starts_when_the_clock_first_shows_it(zone: str, around: str) -> None:
    with resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).open("rb") as stored:
        info = zoneinfo.ZoneInfo.from_file(stored, zone)
    begin = datetime.fromisoformat(around).replace(tzinfo=UTC) - timedelta(days=4)
    minutes = [begin + k * MINUTE for k in range(6 * 1440)]
    latest, start, expected = None, begin, {}
    for one in minutes:
        day = one.astimezone(info).date()
        if latest is None or day > latest:
            latest, start = day, one
        expected[one] = start
    asked = [one for k, one in enumerate(minutes) if k > 2 * 1440 and (k % 7 == 0 or abs(k - 4 * 1440) < 90)]
    for one, found in zip(
        asked, started(zone, asked), strict=True
    ):  # the clock of Juneau was not ahead by whole minutes
        assert timedelta() <= expected[one] - found < MINUTE, one


def test_a_start_is_a_fixed_point_and_the_microsecond_before_it_another_day() -> None:
    (start,) = started("Europe/Berlin", [datetime(2026, 3, 29, 12, tzinfo=UTC)])
    assert start == datetime(2026, 3, 28, 23, tzinfo=UTC)
    assert started("Europe/Berlin", [start, start - timedelta(microseconds=1)]) == [start, datetime(2026, 3, 27, 23, tzinfo=UTC)]  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns"])
def test_starts_ascend_with_times_of_any_size(zone: str) -> None:
    rng = np.random.default_rng(3)
    at = np.sort(np.concatenate([rng.integers(NO_TIME + 1, 2**63 - 1, 2_000), rng.integers(-(5 * 10**15), 5 * 10**15, 5_000)]))  # fmt: skip
    found = day_starts(DayClock(zone, *clock_changes(zone)), at)
    assert (np.diff(found) >= 0).all()
    inside = np.abs(at) < 5 * 10**15
    assert (found[inside] <= at[inside]).all()


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(-48, 48)), max_size=6), st.integers(-48, 48))
def test_days_of_any_clock_start_when_they_are_first_shown(changes: list[tuple[int, int]], offset: int) -> None:
    """Clocks that change after some half hours to any other offset of half hours."""
    starts = np.cumsum([after for after, _ in changes], dtype=np.int64).tolist() if changes else []
    offsets = [offset, *(other for _, other in changes)]
    clock = DayClock("Nowhere", tuple(1800 * one for one in starts), tuple(1800 * one for one in offsets))
    latest, start, expected = -(10**9), 0, []
    for at in range(-150, 300):
        day = (at + offsets[sum(one <= at for one in starts)]) // 48
        if day > latest:
            latest, start = day, at
        expected.append(start)
    half_hour = 1800 * 10**6
    found = day_starts(clock, np.arange(0, 300) * half_hour)
    assert (found // half_hour).tolist() == expected[150:]


@pytest.mark.parametrize(("starts", "offsets"), [((1,), (0,)), ((2, 1), (0, 0, 0)), ((), (86_401,)), ((), ())])
def test_a_clock_that_cannot_be_is_refused(starts: tuple[int, ...], offsets: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="the changes of a clock"):
        DayClock("Nowhere", starts, offsets)


def test_times_of_other_units_and_types() -> None:
    seconds = pa.chunked_array([pa.array([1, None], pa.timestamp("s"))])
    assert micros(seconds).tolist() == [10**6, NO_TIME]
    assert micros(pa.array([1_999], pa.timestamp("ns", "UTC"))).tolist() == [1]
    with pytest.raises(DataError, match="a column of timestamps"):
        micros(pa.array([1]))
