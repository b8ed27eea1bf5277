"""Constant times as text: parsed, compared, printed and fingerprinted."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from tests.support.mutations import mutated
from tests.transforms.operators.test_numbers import run
from transforms.columns.arrow_types import arrow_type
from transforms.comparison.pattern import Pattern
from transforms.errors import HeadraceError, InputError
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import component_document, component_from_document
from transforms.render import expression_text
from transforms.time_range import microseconds, timestamp_text
from transforms.twins.graph import compute
from transforms.twins.tensors import from_arrow, to_arrow
from transforms.types import Dense, DType

TIMES = pa.array([1_772_323_199_999_999, 1_772_323_200_000_000, None], pa.int64()).cast(
    arrow_type(Dense(DType.TIMESTAMP))
)
time = hr.timestamp("time")


def test_a_time_is_compared_with_a_written_moment() -> None:
    assert run(time >= "2026-03-01", time=TIMES) == [False, True, None]
    assert run(time < datetime.date(2026, 3, 1), time=TIMES) == [True, False, None]
    assert run(time == "2026-03-01T01:00+01:00", time=TIMES) == [False, True, None]
    assert run(hr.moment("2026-03-01") > time, time=TIMES) == [True, False, None]
    assert run(time.age_secs(since="2026-02-28T23:59:59"), time=TIMES) == [0.999999, 1.0, None]
    assert run(time.fill_null("2026-03-01").day_of_month(), time=TIMES) == [28, 1, 1]
    assert run(hr.coalesce(time, "2027-01-01").year(), time=TIMES) == [2026, 2026, 2027]
    assert run(time <= hr.timestamp("other"), time=TIMES, other=TIMES) == [True, True, None]


def test_the_twin_of_a_comparison_gives_the_same() -> None:
    root = (time.in_zone("Europe/Berlin") >= "2026-03-01T01:00").node
    twin = compute({"it": root}, {"time": from_arrow(TIMES, Dense(DType.TIMESTAMP))})["it"]
    assert to_arrow(twin, root.type).to_pylist() == run(hr.Expr(root), time=TIMES) == [False, True, None]


def test_every_spelling_of_a_moment_is_one_component() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=1))
    spellings: list[hr.Expr] = [
        time >= "2026-03-01", time >= "2026-03-01T00:00:00Z", time >= "20260301T010000.000000+01:00", time >= hr.moment("2026-03-01"),
        time >= datetime.date(2026, 3, 1), time >= datetime.datetime(2026, 3, 1), time >= datetime.datetime(2026, 3, 1, 1, tzinfo=zone),
        time >= hr.literal(datetime.date(2026, 3, 1)),
    ]  # fmt: skip
    assert len({canonicalize(each.node).identity for each in spellings}) == 1
    assert canonicalize((time >= "2026-03-01T00:00:00.000001").node) != canonicalize(spellings[0].node)
    assert canonicalize((hr.int64("time") >= 1_772_323_200_000_000).node) != canonicalize(spellings[0].node)
    assert component_from_document(component_document(spellings[0].node)) == spellings[0].node


def test_a_moment_after_in_zone_is_what_the_wall_clock_shows() -> None:
    local = time.in_zone("Asia/Tokyo").truncate_time("day")
    assert run(local == "2026-03-01", time=TIMES) == [True, True, None]
    with pytest.raises(InputError, match="a moment beside a wall clock must be written without an offset"):
        _ = local == "2026-03-01T00:00Z"
    with pytest.raises(InputError, match="without an offset"):
        _ = local < datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: time >= "the first of March", "a moment must be a date or a time"),
        (lambda: time >= "2026-02-30", "a moment must be a date or a time"),
        (lambda: time >= "", "a moment must be a date or a time"),
        (lambda: time >= "0001-01-01T00:00+05:00", "years 1 to 9999"),
        (lambda: time >= 1_772_323_200, "the arguments must have equal types, or be numbers"),
        (lambda: hr.moment(5), "a moment must be a date or a time"),
        (lambda: hr.int64("n") >= datetime.date(2026, 3, 1), "the arguments must have equal types, or be numbers"),
        (lambda: Pattern.parse('moment("no time")'), "a moment must be a date or a time"),
        (lambda: Pattern.parse("moment(time)"), "unexpected text"),
    ],
)
def test_mistakes_are_reported_where_they_are_made(mistake: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        mistake()


def test_a_printed_moment_is_a_pattern_of_itself() -> None:
    expression = (time >= "2026-03-01T09:30") & (time < hr.moment("2026-04-01"))
    for part in (expression, hr.moment("0001-01-01") < time):
        assert Pattern.parse(expression_text(part.node)).matches(part.node)
        assert Pattern.parse(Pattern.parse(expression_text(part.node)).text) == Pattern.parse(
            expression_text(part.node)
        )
    assert not Pattern.parse('greater_equal(time, moment("2026-03-02"))').matches((time >= "2026-03-01").node)
    assert not Pattern.parse("greater_equal(time, 1772323200000000)").matches((time >= "2026-03-02").node)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_timestamp_is_printed_so_that_it_is_read_again(value: int) -> None:
    text = timestamp_text(value)
    assert Pattern.parse(f"moment({text})").text == f"moment({text})"
    if text.startswith("'"):
        assert microseconds(text.strip("'")) == value


@pytest.mark.parametrize("seed", range(20))
def test_any_text_is_a_moment_or_an_error(seed: int) -> None:
    random = Random(seed)
    for _ in range(200):
        text = mutated(b"2026-03-01T09:30:00.123456+01:00", random, (b"+99:99", b"W10-1", b"Z", b"0000")).decode(
            "latin-1"
        )
        try:
            found = time >= text
        except HeadraceError:
            continue
        assert Pattern.parse(expression_text(found.node)).matches(found.node)


def test_a_wall_clock_is_printed_by_its_zone_and_version() -> None:
    berlin, tokyo = time.in_zone("Europe/Berlin").hour_of_day(), time.in_zone("Asia/Tokyo").hour_of_day()
    text = expression_text(berlin.node)
    assert text == "hour_of_day(in_zone(time, clock v-2e69cfed, zone='Europe/Berlin'))"
    assert Pattern.parse(text).matches(berlin.node)
    assert Pattern.parse("hour_of_day(in_zone(time, zone='Europe/Berlin'))").matches(berlin.node)
    assert not Pattern.parse(text).matches(tokyo.node)
    assert not Pattern.parse("hour_of_day(in_zone(time, clock v-00000000))").matches(berlin.node)
    with pytest.raises(InputError, match="no such parameter"):
        Pattern.parse("in_zone(time, place='Europe/Berlin')")
