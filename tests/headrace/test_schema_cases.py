"""Small logs that foreign writers made, whose schemas change or whose folders hold columns, from the command line."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.scenes import FREE_READS
from tests.warehouse.tables.evolution.scenes import column_of, values
from warehouse import Warehouse, WarehouseConfig

FIRST, SECOND = "date=2026-03-01", "date=2026-03-02"
_ROWS = 20


@pytest.fixture
def cases(shared_data: Path) -> Path:
    folder = shared_data.parent / "cases/imports"
    if not folder.is_dir():
        pytest.skip("no cases of imports beside this checkout")
    return folder


#: The column that changes, the type it has then, and its values on the first and on the second day.
CHANGES: dict[str, tuple[str, str, list[Any], list[Any]]] = {
    "1_null_then_text": ("city", "string", [None] * _ROWS, ["x"] * _ROWS),
    "1_int32_then_int64": ("k", "int64", list(range(_ROWS)), [2**40 + i for i in range(_ROWS)]),
    "1_new_column": ("score", "double", [None] * _ROWS, [1.5] * _ROWS),
}


def read(tmp_path: Path, column: str, table: str = "log") -> tuple[str, list[Any]]:
    """The type and the values of a column, in time order of the partitions."""
    config = WarehouseConfig(str(tmp_path / "home"), read_threads=1, rates=FREE_READS)
    with Warehouse.open(config) as warehouse:
        return column_of(warehouse, column, table).arrow_type, values(warehouse, column, table)


TOGETHER = [(FIRST, SECOND)]


@pytest.mark.parametrize(
    ("arrivals", "swapped"),
    [(TOGETHER, False), (TOGETHER, True), ([(SECOND,), (FIRST,)], False)],
    ids=["together", "together, swapped", "backwards"],
)
@pytest.mark.parametrize("case", CHANGES)
def test_a_schema_that_changes(cli, cases, tmp_path, case, arrivals: Sequence[Sequence[str]], swapped: bool):
    """The table is the same, whichever file lies in which day and whichever arrives first."""
    column, kind, first, second = CHANGES[case]
    for days in arrivals:
        for day in days:
            source = {FIRST: SECOND, SECOND: FIRST}[day] if swapped else day
            shutil.copytree(cases / case / source, tmp_path / "log" / day)
        added = cli("table", "add", "log", tmp_path / "log", "--time-column", "time", "--json").json
    assert added["rows"] == 40
    assert read(tmp_path, column) == (kind, second + first if swapped else first + second)


@pytest.mark.parametrize("case", CHANGES)
def test_a_schema_that_changes_in_an_append_or_an_import(cli, cases, tmp_path, case):
    column, kind, first, second = CHANGES[case]
    day, later = (cases / case / key / "p.parquet" for key in (FIRST, SECOND))
    shutil.copytree(day.parent, tmp_path / "log" / FIRST)
    cli("table", "add", "log", tmp_path / "log", "--time-column", "time")
    cli("table", "append", "log", later, "--create")
    assert read(tmp_path, column) == (kind, first + second)
    for table, batches in (
        ("together", [(day, later)]),
        ("backwards", [(later,), (day,)]),
    ):
        for files in batches:
            cli("table", "import", table, *files, "--time-column", "time", "--partition-by", "day")
        found_kind, found = read(tmp_path, column, table)  # in the order of times, which is not that of the files
        assert (found_kind, *(sorted(part, key=str) for part in (found[:_ROWS], found[_ROWS:]))) == (
            kind, sorted(first, key=str), sorted(second, key=str),
        ), table  # fmt: skip


def test_a_level_that_is_a_column(cli, cases, tmp_path):
    cli("table", "add", "log", cases / "4_country_level", "--time-column", "time")
    imported = cli("table", "import", "imported", f"{cases}/4_country_level/**/*.parquet", "--time-column", "time").out
    assert "imported 80 rows into 2 partitions" in imported
    assert "columns by the names of folders: country" in imported
    for table in ("log", "imported"):
        kind, found = read(tmp_path, "country", table)
        assert kind == "string"
        assert [(day.count("DE"), day.count("FR")) for day in (found[:40], found[40:])] == [(20, 20)] * 2, table


def test_a_day_of_another_name(cli, cases, tmp_path):
    added = cli("table", "add", "log", cases / "4_ds", "--time-column", "time", "--json").json
    assert (added["added"], added["rows"]) == ([FIRST, SECOND], 40)
