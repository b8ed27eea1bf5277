"""Calendar fields and wall clocks compared with Python's."""

from __future__ import annotations

import datetime
import itertools
import random
import struct
import zoneinfo
from importlib import resources

import pyarrow as pa
import pytest

import headrace as hr
from tests.transforms.operators.test_numbers import run
from transforms.columns.arrow_types import arrow_type
from transforms.errors import InputError
from transforms.graphs.fingerprint import fingerprint
from transforms.operators.zones import STRIDE_SECS, clock_changes
from transforms.types import Dense, DType

_EPOCH = datetime.datetime(1970, 1, 1)
_DAY_US = 86_400_000_000
_TIMESTAMP = arrow_type(Dense(DType.TIMESTAMP))
_ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca",
          "Europe/Dublin", "America/Sao_Paulo", "Asia/Kathmandu", "Antarctica/Troll", "Etc/UTC", "Africa/Monrovia"]  # fmt: skip

time = hr.timestamp("time")


def _times(values: list[int]) -> pa.Array:
    return pa.array(values, pa.int64()).cast(_TIMESTAMP)


def _moment(time_us: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=time_us)


@pytest.mark.medium
def test_every_day_of_eight_centuries() -> None:
    days = range(-135_140, 157_054)  # 1600 to 2399
    times = _times([day * _DAY_US + 12_345_678_901 for day in days])
    dates = [_moment(day * _DAY_US) for day in days]
    assert run(time.year(), time=times) == [date.year for date in dates]
    assert run(time.month(), time=times) == [date.month for date in dates]
    assert run(time.day_of_month(), time=times) == [date.day for date in dates]
    assert run(time.day_of_year(), time=times) == [date.timetuple().tm_yday for date in dates]
    assert run(time.week_of_year(), time=times) == [date.isocalendar().week for date in dates]
    assert run(time.is_weekend(), time=times) == [date.weekday() >= 5 for date in dates]


def test_weeks_at_the_turn_of_the_year_are_those_of_iso_8601() -> None:
    dates = {"2021-01-03": 53, "2021-01-04": 1, "2018-12-31": 1, "2016-01-01": 53, "2012-01-01": 52, "2020-12-31": 53}
    times = _times([round((datetime.datetime.fromisoformat(date) - _EPOCH).total_seconds()) * 10**6 for date in dates])
    assert run(time.week_of_year(), time=times) == list(dates.values())


def test_the_calendar_has_no_ends() -> None:
    ends = _times([-(2**63), 2**63 - 1])
    assert run(time.year(), time=ends) == [-290308, 294247]
    assert run(time.month(), time=ends) == [12, 1]
    assert run(time.day_of_month(), time=ends) == [21, 10]


def _table_offset(zone: str, at_secs: int) -> int:
    starts, offsets = clock_changes(zone)
    return offsets[sum(start <= at_secs for start in starts)]


def _stored(zone: str) -> zoneinfo.ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).open("rb") as stored:
        return zoneinfo.ZoneInfo.from_file(stored, zone)


def _python_offset(info: zoneinfo.ZoneInfo, at_secs: int) -> int:
    moment = (_EPOCH + datetime.timedelta(seconds=at_secs)).replace(tzinfo=datetime.UTC)
    return round(moment.astimezone(info).utcoffset().total_seconds())


@pytest.mark.parametrize("zone", _ZONES)
def test_wall_clocks_show_what_python_says(zone: str) -> None:
    source = random.Random(zone)
    starts, _ = clock_changes(zone)
    seconds = [source.randrange(-5_300_000_000, 4_100_000_000) for _ in range(500)]
    seconds += [start + step for start in starts for step in (-1, 0, 1)]
    info = _stored(zone)
    offsets = [_python_offset(info, at) for at in seconds]
    got = run(time.in_zone(zone), time=_times([at * 10**6 for at in seconds]))
    assert [value.replace(tzinfo=None) for value in got] == [
        _moment((at + offset) * 10**6) for at, offset in zip(seconds, offsets, strict=True)
    ]


def _stored_changes(zone: str) -> list[int]:
    """When the offset changes, as written in the second block of a TZif file (RFC 8536)."""
    stored = resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes()
    counts = struct.unpack_from(">6l", stored, 20)
    at = 44 + 4 * counts[3] + counts[3] + 6 * counts[4] + counts[5] + 8 * counts[2] + counts[1] + counts[0]
    moments, kinds = struct.unpack_from(">6l", stored, at + 20)[3:5]
    times = struct.unpack_from(f">{moments}q", stored, at + 44)
    which = [0, *stored[at + 44 + 8 * moments : at + 44 + 9 * moments]]
    offsets = [struct.unpack_from(">l", stored, at + 44 + 9 * moments + 6 * kind)[0] for kind in range(kinds)]
    return [time for time, (a, b) in zip(times, itertools.pairwise(which), strict=True) if offsets[a] != offsets[b]]


def test_no_clock_was_changed_twice_within_a_stride() -> None:
    for zone in resources.files("tzdata").joinpath("zones").read_text().split():
        assert all(b - a > STRIDE_SECS for a, b in itertools.pairwise(_stored_changes(zone))), zone


def test_changes_are_those_in_the_stored_tables() -> None:
    for zone in _ZONES:
        stored = _stored_changes(zone)
        assert set(stored) <= set(clock_changes(zone)[0]), zone


@pytest.mark.slow
def test_every_zone_is_known_at_every_change_it_ever_had() -> None:
    for zone in resources.files("tzdata").joinpath("zones").read_text().split():
        source = random.Random(zone)
        _, offsets = clock_changes(zone)
        assert all(a != b for a, b in itertools.pairwise(offsets))
        info = _stored(zone)
        for at in [source.randrange(-5_300_000_000, 4_100_000_000) for _ in range(300)]:
            assert _table_offset(zone, at) == _python_offset(info, at), (zone, at)


def test_known_moments_of_summer_time() -> None:
    utc = [
        "2025-03-30T00:59:59",
        "2025-03-30T01:00:00",
        "2025-10-26T00:59:59",
        "2025-10-26T01:00:00",
        "2099-07-01T12:00:00",
    ]
    times = _times([round((datetime.datetime.fromisoformat(at) - _EPOCH).total_seconds()) * 10**6 for at in utc])
    assert run(time.in_zone("Europe/Berlin").hour_of_day(), time=times) == [1, 3, 2, 2, 14]


def test_a_time_that_the_clock_cannot_show_is_null() -> None:
    assert run(time.in_zone("Asia/Tokyo").year(), time=_times([2**63 - 1, 0])) == [None, 1970]
    assert run(time.in_zone("America/New_York").year(), time=_times([-(2**63), 0])) == [None, 1969]
    assert run(time.truncate_time("week").year(), time=_times([-(2**63), 0])) == [None, 1969]


def test_the_error_of_an_unknown_zone_names_similar_ones() -> None:
    with pytest.raises(InputError) as caught:
        time.in_zone("Europe/Berln")
    assert caught.value.value == "Europe/Berln"
    assert "Europe/Berlin" in caught.value.allowed
    for path in ("../tzdata", "", "europe/berlin", "/etc/passwd", None, 2, ["Europe/Berlin"]):
        with pytest.raises(InputError, match="time zone"):
            time.in_zone(path)  # type: ignore[arg-type]


def test_the_clock_is_in_the_fingerprint_and_not_on_the_screen() -> None:
    def at(offset: int) -> hr.Expr:
        return time._apply("in_zone", zone="Here", starts=(0,), offsets_secs=(0, offset))

    assert fingerprint(at(3600).node) != fingerprint(at(7200).node)
    assert len(str(time.in_zone("America/New_York"))) < 150


def test_ages() -> None:
    now, then = hr.timestamp("now"), hr.timestamp("then")
    far = {"now": _times([2**63 - 1, 0, 10**6]), "then": _times([-1, -(2**63), 10**6])}
    assert run(now.age_secs(since=then), **far) == [None, None, 0.0]
    ago = [1, 59, 60, 3_599, 86_400, 10**9]
    columns = {"now": _times([0] * 6), "then": _times([-at * 10**6 for at in ago])}
    assert run(now.recency_buckets(since=then), **columns) == [0, 0, 1, 2, 5, 8]
    assert run(now.recency_buckets(then, [10]), **columns) == [0, 1, 1, 1, 1, 1]
    clicks = hr.ragged("clicks", "timestamp")
    lists = pa.array([[0, 10**6], []], pa.list_(pa.field("item", pa.int64(), nullable=False)))
    lists = lists.cast(arrow_type(hr.ragged("x", "timestamp").type))
    assert run(now.age_secs(since=clicks), now=_times([2 * 10**6, 0]), clicks=lists) == [[2.0, 1.0], []]


@pytest.mark.medium
@pytest.mark.parametrize(("unit", "months"), [("month", 1), ("quarter", 3), ("year", 12)])
def test_months_quarters_and_years_begin_where_the_calendar_says(unit: str, months: int) -> None:
    days = range(-135_140, 157_054, 3)  # 1600 to 2399
    times = _times([day * _DAY_US + 12_345_678_901 for day in days])
    dates = [_moment(day * _DAY_US) for day in days]
    starts = [date.replace(month=(date.month - 1) // months * months + 1, day=1) for date in dates]

    got = run(time.truncate_time(unit), time=times)

    assert [each.replace(tzinfo=None) for each in got] == starts


def test_a_month_of_a_wall_clock_begins_at_its_midnight() -> None:
    times = _times([round(datetime.datetime(2026, 2, 28, 16, tzinfo=datetime.UTC).timestamp()) * 10**6])
    assert run(time.in_zone("Asia/Tokyo").truncate_time("month") == "2026-03-01", time=times) == [True]
    assert run(time.truncate_time("month") == "2026-02-01", time=times) == [True]
    assert run(time.truncate_time("year"), time=_times([-(2**63)])) == [None]
