"""Folders of the form name=value: which state a time, which are columns, and which are side files."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import DataError
from warehouse.tables.hive_levels import is_side_file, is_side_folder, parse_levels, spell_like
from warehouse.tables.partitions import partition_range

DAY, HOUR = "date=2026-03-01", "date=2026-03-01/hour=05"

#: The folders of a file; the partition that they state, the folders that state it, and the columns of the others.
FOLDERS: dict[str, tuple[str, str, dict[str, str | None]]] = {
    "date=2026-03-01": (DAY, "date=2026-03-01", {}),
    "date=2026-03-01/hour=05": (HOUR, "date=2026-03-01/hour=05", {}),
    "date=2026-03-01/hour=5": ("date=2026-03-01/hour=5", "date=2026-03-01/hour=5", {}),
    "date=20260301/hr=5": (HOUR, "date=20260301/hr=5", {}),
    "ds=2026-03-01": (DAY, "ds=2026-03-01", {}),
    "dt=20260301": (DAY, "dt=20260301", {}),
    "dt=2026030105": (HOUR, "dt=2026030105", {}),
    "dt=2026-03-01-05": (HOUR, "dt=2026-03-01-05", {}),
    "dt=2026-03-01%2005": (HOUR, "dt=2026-03-01%2005", {}),
    "day=2026-03-01": (DAY, "day=2026-03-01", {}),
    "event_date=2026-03-01/hour=05": (HOUR, "event_date=2026-03-01/hour=05", {}),
    "year=2026/month=03/day=01": (DAY, "year=2026/month=03/day=01", {}),
    "year=2026/month=3/day=1/hour=5": (HOUR, "year=2026/month=3/day=1/hour=5", {}),
    "date=2026-03-01/country=DE": (DAY, "date=2026-03-01", {"country": "DE"}),
    "country=DE/date=2026-03-01/device=tv": (DAY, "date=2026-03-01", {"country": "DE", "device": "tv"}),
    "country=C%C3%B4te%20d%27Ivoire%2Fx/ds=2026-03-01": (DAY, "ds=2026-03-01", {"country": "Côte d'Ivoire/x"}),
    "country=__HIVE_DEFAULT_PARTITION__/ds=2026-03-01": (DAY, "ds=2026-03-01", {"country": None}),
    "country=/ds=2026-03-01": (DAY, "ds=2026-03-01", {"country": ""}),
    "a%3Db=c=d/ds=2026-03-01": (DAY, "ds=2026-03-01", {"a=b": "c=d"}),
    "year=2024/date=2026-03-01": (DAY, "date=2026-03-01", {"year": "2024"}),
    "date=2026-03-01/dt=20260302": (DAY, "date=2026-03-01", {"dt": "20260302"}),
    "year=2026/month=03": ("", "", {"year": "2026", "month": "03"}),
    "hour=05": ("", "", {"hour": "05"}),
    "date=yesterday": ("", "", {"date": "yesterday"}),
    "some/folder": ("", "", {}),
    "": ("", "", {}),
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_levels(folder: str) -> None:
    found = parse_levels(folder)
    assert (found.key, found.time_folder, dict(found.columns)) == FOLDERS[folder]


@pytest.mark.parametrize("folder", [folder for folder, (key, _, _) in FOLDERS.items() if key])
def test_a_partition_is_spelled_as_its_folders_are(folder: str) -> None:
    found = parse_levels(folder)
    start, _ = partition_range(found.key)
    hourly = "/" in found.key
    assert spell_like(found.time, start, hourly=hourly) == found.time_folder
    other = spell_like(found.time, datetime(2027, 11, 12, 13, tzinfo=UTC), hourly=hourly)
    again = parse_levels(other)
    assert partition_range(again.key)[0] == datetime(2027, 11, 12, 13 if hourly else 0, tzinfo=UTC)
    assert [level.name for level in again.time] == [level.name for level in found.time]
    assert spell_like(parse_levels("ds=2026-03-01").time, start, hourly=True) == f"ds=2026-03-01/hour={start:%H}"


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("date=2026-03-01/hour=noon", "must be a number"),
        ("date=2026-03-01/hour=__HIVE_DEFAULT_PARTITION__", "must be a number"),
        ("country=DE/date=2026-03-01/country=FR", "in a path once"),
        ("country=%FF/date=2026-03-01", "must be UTF-8"),
    ],
)
def test_levels_that_are_refused(folder: str, text: str) -> None:
    with pytest.raises(DataError, match=text) as caught:
        parse_levels(folder, "/data/x.parquet")
    assert caught.value.where == "/data/x.parquet"


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=3), st.text(max_size=12))
def test_names_and_values_of_any_text_come_back(names: list[str], value: str) -> None:
    folder = "/".join(f"x{quote(name, safe='')}={quote(value, safe='')}" for name in dict.fromkeys(names))
    try:
        found = parse_levels(f"{folder}/ds=2026-03-01")
    except UnicodeEncodeError:
        return
    assert dict(found.columns) == {f"x{name}": value for name in names}
    assert found.key == DAY


@given(st.text(alphabet="date=2026-03/hour%ym_. é", max_size=40))
def test_any_folder_is_parsed_or_refused(folder: str) -> None:
    try:
        found = parse_levels(folder)
    except DataError:
        return
    try:
        _ = partition_range(found.key) if found.key else None
    except DataError:
        return  # such as the thirteenth month


SIDE_FILES = ["_SUCCESS", ".part.parquet.crc", "_temporary/0/part.parquet", "ds=2026-03-01/_SUCCESS",
              "ds=2026-03-01/.hidden/part.parquet", "_delta_log/0.json", "a/_metadata"]  # fmt: skip
LOG_FILES = ["part.parquet", "ds=2026-03-01/part_0.parquet", "_hour=3/part.parquet", "a.b/c_.csv"]


def test_side_files() -> None:
    assert [path for path in (*SIDE_FILES, *LOG_FILES) if is_side_file(path)] == SIDE_FILES
    assert is_side_folder("ds=2026-03-01/_temporary")
    assert not is_side_folder("_hour=3")
