"""Times as text: strptime patterns, ISO 8601, fractional counts, and wall clocks of time zones."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.cells.time_advice import fitting_entries
from pipelines.cells.times import FINER, SKIPPED, TWICE
from pipelines.cells.typed_cells import typed_cells
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.time_formats import ISO_8601, WELL_KNOWN, read_times, time_pattern
from tests.support.examples import scaled
from transforms.types import DType

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(texts: list[str], **options: Any) -> tuple[list[datetime | None], dict[str, int]]:
    notes: Counter[str] = Counter()
    array, bad = typed_cells(pa.array(texts, pa.string()), LogColumn("t", DType.TIMESTAMP, **options), notes)
    assert list(bad) == [value is None for value in array.to_pylist()]
    return array.to_pylist(), dict(notes)


def utc(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text_format", "text", "time"),
    [
        ("%Y-%m-%d %H:%M", "2017-07-02 7:50", utc(2017, 7, 2, 7, 50)),
        ("%d/%b/%Y:%H:%M:%S %z", "02/Jul/2017:07:50:00 +0200", utc(2017, 7, 2, 5, 50)),
        ("%a %b %e %T %Z %Y", "sun JUL  2 07:50:00 UTC 2017", utc(2017, 7, 2, 7, 50)),
        ("%B %d, %Y %I:%M %p", "July 2, 2017 12:05 am", utc(2017, 7, 2, 0, 5)),
        ("%m/%d/%y %I%p", "7/2/17 12PM", utc(2017, 7, 2, 12)),
        ("%y%m%d", "690101", utc(1969, 1, 1)),
        ("%Y%m%d%H%M%S", "20170702075000", utc(2017, 7, 2, 7, 50)),
        ("%Y%m%d%H%M%S", "2017072075000", None),
        ("%Y-%j", "2016-366", utc(2016, 12, 31)),
        ("%Y-%j", "2017-366", None),
        ("%F %T,%f", "2017-07-02 07:50:00,5", utc(2017, 7, 2, 7, 50, 0, 500_000)),
        ("%s.%f", "-1.25", utc(1969, 12, 31, 23, 59, 58, 750_000)),
        ("%Y年%m月%d日", "2017年7月2日", utc(2017, 7, 2)),
        ("%Y.%m", "2017.07", utc(2017, 7, 1)),
        ("%Y.%m", "2017x07", None),
        ("100%% %Y-%m-%d", "100% 2017-07-02", utc(2017, 7, 2)),
        ("%Y-%m-%d", "2017-02-29", None),
        ("%Y-%m-%d", "2017-07-02 ", None),
        ("%Y-%m-%d", "2017-07-02\n", None),
        ("%Y-%m-%d", "0000-07-02", None),
        ("%Y-%m-%d %H:%M:%S", "2017-07-02 23:59:60", None),
        ("%Y-%m-%d %H:%M %z", "2017-07-02 23:59 +2400", None),
    ],
)
def test_a_pattern_reads_a_time_as_the_docs_say(text_format: str, text: str, time: datetime | None) -> None:
    assert read([text], formats=(text_format,))[0] == [time]


def test_the_first_format_that_fits_is_taken() -> None:
    formats = ("%d/%m/%Y", "%m/%d/%Y", "%Y-%m-%d")
    times, _ = read(["02/07/2017", "07/13/2017", "2017-07-02", "13/13/2017"], formats=formats)
    assert times == [utc(2017, 7, 2), utc(2017, 7, 13), utc(2017, 7, 2), None]


@given(st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 30)), st.sampled_from(WELL_KNOWN))
@settings(max_examples=scaled(100))
def test_a_pattern_reads_what_python_writes(time: datetime, text_format: str) -> None:
    text = time.replace(tzinfo=UTC).strftime(text_format)
    assert read([text], formats=(text_format,))[0] == [
        datetime.strptime(text.replace("GMT", "UTC"), text_format.replace("%e", "%d")).replace(tzinfo=UTC)
    ]


ISO = st.builds(
    "{}{}{}{}".format,
    st.dates().map(str),
    st.sampled_from(["T00", " 23:59", "T07:50:01", " 07:50:01.5", "T07:50:01.123456", "T24:00", ""]),
    st.sampled_from(["", "Z", "+02", "-0330", "+05:45", "+24:00"]),
    st.sampled_from(["", "", " ", "x"]),
)


@given(st.lists(ISO, min_size=1, max_size=4))
@settings(max_examples=scaled(200))
def test_iso_8601_is_the_same_in_any_company(texts: list[str]) -> None:
    alone = [read([text], unit="iso8601")[0][0] for text in texts]
    assert read(texts, unit="iso8601")[0] == alone
    times = read_times(pa.array(texts, pa.string()), ISO_8601)
    both = [EPOCH + timedelta(microseconds=int(us)) if good else None
            for us, good in zip(times.microseconds, times.read, strict=True)]  # fmt: skip
    assert both == alone


@given(st.from_regex(r"\A-?[0-9]{1,12}(\.[0-9]{0,12})?\Z"), st.sampled_from(["s", "ms", "us", "ns"]))
@settings(max_examples=scaled(300))
def test_a_count_with_a_fraction_is_rounded_down(text: str, unit: str) -> None:
    exact = Fraction(text.rstrip(".")) * {"s": 10**6, "ms": 10**3, "us": 1, "ns": Fraction(1, 1000)}[unit]
    microseconds = exact.numerator // exact.denominator
    if -62_135_596_800_000_000 <= microseconds <= 253_402_300_799_999_999:
        finer = {FINER: 1} if exact.denominator != 1 else {}
        assert read([text], unit=unit) == ([EPOCH + timedelta(microseconds=microseconds)], finer)
    else:
        assert read([text], unit=unit) == ([None], {})


@pytest.mark.parametrize(
    ("zone", "text", "time", "counted"),
    [
        ("Europe/Berlin", "2026-03-29 01:59", utc(2026, 3, 29, 0, 59), {}),
        ("Europe/Berlin", "2026-03-29 02:30", utc(2026, 3, 29, 1, 30), {SKIPPED: 1}),
        ("Europe/Berlin", "2026-03-29 03:00", utc(2026, 3, 29, 1), {}),
        ("Europe/Berlin", "2026-10-25 02:30", utc(2026, 10, 25, 0, 30), {TWICE: 1}),
        ("Europe/Berlin", "2026-10-25 03:00", utc(2026, 10, 25, 2), {}),
        ("Pacific/Apia", "2011-12-30 12:00", utc(2011, 12, 30, 22), {SKIPPED: 1}),
        ("Asia/Tokyo", "2011-07-02 7:50", utc(2011, 7, 1, 22, 50), {}),
        ("Asia/Tokyo", "2011-07-02T07:50Z", utc(2011, 7, 2, 7, 50), {}),
        ("UTC", "2011-07-02 7:50", utc(2011, 7, 2, 7, 50), {}),
    ],
)
def test_a_local_time_is_read_by_its_zone(zone: str, text: str, time: datetime, counted: dict[str, int]) -> None:
    assert read([text], unit="iso8601", zone=zone) == ([time], counted)


ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Pacific/Apia",
]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2024, 12, 31)), st.sampled_from(ZONES))
@settings(max_examples=scaled(200))
def test_a_local_time_equals_that_of_python(local: datetime, zone: str) -> None:
    found, _ = read([local.isoformat(" ")], unit="iso8601", zone=zone)
    assert found == [local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)]


UNTIL_2027 = (0, 1_798_761_600_000_000)


@pytest.mark.parametrize(
    ("text", "range_us", "entries"),
    [
        ("2011-07-02 7:50", None, ['"unit": "iso8601"']), ("13/07/2017 7:50", None, ['"format": "%d/%m/%Y %H:%M"']),
        ("04/03/2017", None, ['"format": "%d/%m/%Y"', '"format": "%m/%d/%Y"']), ("1501632000.25", None, ['"unit": "s"']),
        ("1501632000000", None, ['"unit": "ms"']), ("noon", None, []), ("\udfff", None, []),
        # Hours in ten digits are also seconds of 2034: advice is tried, also against the plausible times.
        ("2026030107", None, ['"unit": "s"', '"format": "%Y%m%d%H"']), ("2026030107", UNTIL_2027, ['"format": "%Y%m%d%H"']),
        ("26030107", UNTIL_2027, ['"format": "%y%m%d%H"']), ("26133107", UNTIL_2027, []), ("2026-02-30", None, []),
    ],
)  # fmt: skip
def test_a_refused_time_shows_what_would_fit(text: str, range_us: tuple[int, int] | None, entries: list[str]) -> None:
    column = LogColumn("t", DType.TIMESTAMP, formats=("%Y",))
    assert list(fitting_entries(column, lambda _: text, range_us)) == entries


def test_advice_is_tried_on_the_kind_of_the_value() -> None:
    column = LogColumn("t", DType.TIMESTAMP, unit="ms")
    takes_numbers = fitting_entries(column, lambda other: "20260301" if other.formats else None, None)
    assert takes_numbers == ()  # a number is no ISO 8601 time in JSON lines
    assert LogColumn("t", DType.TIMESTAMP, formats=("%Y-%m-%d", "%s")).expected == 'a time as "%Y-%m-%d" or "%s"'


def test_every_well_known_form_is_a_pattern() -> None:
    assert [time_pattern(one).text for one in WELL_KNOWN] == list(WELL_KNOWN)
