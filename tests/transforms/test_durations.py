"""Durations as microseconds."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.durations import MOST_MICROS, duration_text, micros_of
from transforms.errors import InputError


@pytest.mark.parametrize(
    ("written", "micros"),
    [("90s", 90 * 10**6), ("10m", 600 * 10**6), ("6h", 21_600 * 10**6), (" 7D ", 604_800 * 10**6), ("0.1s", 100_000), ("0s", 0), (timedelta(days=1), 86_400 * 10**6)],
)  # fmt: skip
def test_a_duration_is_exact(written: str | timedelta, micros: int) -> None:
    assert micros_of("window", written) == micros


@given(st.integers(0, MOST_MICROS))
def test_a_timedelta_keeps_each_microsecond(micros: int) -> None:
    assert micros_of("window", timedelta(microseconds=micros)) == micros


@given(st.integers(0, MOST_MICROS) | st.integers(0, 1000).map(lambda hours: hours * 3_600 * 10**6))
def test_the_text_of_a_duration_is_read_as_the_duration(micros: int) -> None:
    assert micros_of("window", duration_text(micros)) == micros


@pytest.mark.parametrize(("micros", "text"), [(0, "0s"), (7 * 86_400 * 10**6, "7d"), (5_400 * 10**6, "90m"), (1_500_000, "1.5s"), (1, "0.000001s")])  # fmt: skip
def test_a_duration_has_its_largest_unit(micros: int, text: str) -> None:
    assert duration_text(micros) == text


@pytest.mark.parametrize("wrong", ["", "7", "d", "-1d", "1w", "1e3s", "٣d", 7, None, True, timedelta(-1), "366001d", timedelta(days=400_000)])  # fmt: skip
def test_anything_else_is_refused(wrong: object) -> None:
    with pytest.raises(InputError, match="max_age must be a duration of at most 1,000 years") as caught:
        micros_of("max_age", wrong, where="latest of table users")
    assert (caught.value.where, caught.value.value) == ("latest of table users", wrong)
