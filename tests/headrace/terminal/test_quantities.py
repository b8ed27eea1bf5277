"""Sizes, times and durations: what is read, and what is refused instead of failing later."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.terminal.quantities import age_of, bytes_of, moment_of, span_of
from transforms.errors import InputError

TEXTS = (
    st.text(st.sampled_from("0123456789.dhmsgbkiptT:-+Z e"), max_size=30)
    | st.text("9", min_size=1, max_size=400)
    | st.text(max_size=8)
)


@given(TEXTS)
def test_a_text_is_a_quantity_that_a_catalog_can_compare_or_one_error(text: str) -> None:
    for read in (lambda: bytes_of("o", text), lambda: age_of("o", text, 1.7e9), lambda: span_of("o", text)):
        try:
            found = read()
        except InputError:
            continue
        assert found is None or (math.isfinite(found) and abs(found) < 2**63)
    try:
        moment = moment_of("o", text)
    except InputError:
        return
    assert moment is None or isinstance(moment.astimezone(UTC), datetime)


@pytest.mark.parametrize(
    ("read", "text", "rule"),
    [
        (lambda text: bytes_of("o", text), "8EiB", "a size must be a number"),
        (lambda text: bytes_of("o", text), "9300PB", "less than 8 EiB"),
        (lambda text: bytes_of("o", text), "9" * 400, "less than 8 EiB"),
        (lambda text: age_of("o", text, 0.0), "365251d", "at most 1,000 years"),
        (lambda text: span_of("o", text), "9" * 400 + "d", "at most 1,000 years"),
        (lambda text: moment_of("o", text), "0001-01-01T00:00:00+14:00", "must be ISO 8601"),
        (lambda text: moment_of("o", text), "9999-12-31T23:59:59-14:00", "must be ISO 8601"),
    ],
)
def test_a_quantity_out_of_range_is_refused(read: object, text: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)  # type: ignore[operator]
    assert rule in caught.value.what


def test_quantities_in_range() -> None:
    assert (bytes_of("o", "500GB"), bytes_of("o", "1.5 GiB"), bytes_of("o", "")) == (
        500_000_000_000,
        1_610_612_736,
        None,
    )
    assert (age_of("o", "30", 1e9), age_of("o", "12h", 1e9), span_of("o", "1.5d")) == (
        1e9 - 30 * 86_400,
        1e9 - 43_200,
        129_600,
    )
    assert moment_of("o", "2026-03-02T18:00") == datetime(2026, 3, 2, 18, tzinfo=UTC)
    assert moment_of("o", "2026-03-02T18:00+01:00") == datetime(2026, 3, 2, 17, tzinfo=UTC)
