"""Levels of folders in a registered table: columns of text without bytes, partitions in other spellings, side files."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import transforms.expressions.expression as hr
from tests.support.examples import scaled
from tests.warehouse.scenes import FREE_READS, Clock
from tests.warehouse.tables.evolution.scenes import ROWS, add, column_of, day, history, submit, the_table, values, work
from transforms.errors import DataError
from warehouse import Warehouse, WarehouseConfig, read_fragment, read_solution
from warehouse.changes.append import append_rows
from warehouse.changes.deletion import delete_rows
from warehouse.changes.overlay import fix_columns, overlay_columns
from warehouse.errors import EmptyPartition, SchemaDrift
from warehouse.maintenance.compact_table import compact_table
from warehouse.maintenance.verify import verify_warehouse
from warehouse.tables.manifests import current_fragments


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


def write(root: Path, folder: str, table: pa.Table, name: str = "part-0.parquet") -> Path:
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def partitions(warehouse: Warehouse, table: str = "log") -> list[str]:
    with warehouse.catalog.read() as connection:
        return list(dict.fromkeys(placed.partition for placed in current_fragments(connection, table)))


@pytest.mark.medium
def test_a_level_is_a_column_of_text(warehouse: Warehouse, root: Path) -> None:
    for number in (1, 2):
        for country in ("DE", "FR"):
            write(root, f"date=2026-03-{number:02d}/country={country}", day(number))
    found = add(warehouse, root)
    assert (found.rows, found.levels, found.lacking, found.unread_levels) == (80, ("country",), (), ())
    assert partitions(warehouse) == ["date=2026-03-01", "date=2026-03-02"]
    assert column_of(warehouse, "country").arrow_type == "string"
    assert values(warehouse, "country") == (["DE"] * ROWS + ["FR"] * ROWS) * 2
    submit(
        warehouse,
        country=hr.text("country").lower().hash_buckets(50),
        both=hr.cross(hr.text("country"), hr.text("user"), buckets=99),
    )
    assert [columns for _, columns in work(warehouse)].count("country") == 2, "days of one country are equal"
    assert add(warehouse, root).unchanged == 2
    assert verify_warehouse(warehouse, recompute=20).findings == ()


def test_values_of_levels(warehouse: Warehouse, root: Path) -> None:
    write(root, "country=C%C3%B4te%20d%27Ivoire/ds=2026-03-01", day(1, 1))
    write(root, "country=__HIVE_DEFAULT_PARTITION__/ds=2026-03-01", day(1, 1))
    write(root, "country=DE/dt=20260302", day(2, 2))
    write(root, "year=2026/month=3/day=3", day(3, 1))
    write(root, "date=2026-03-04/country=DE", day(4, 2, country=["DE", "DE"]))
    found = add(warehouse, root)
    assert (found.unread_levels, found.lacking) == ((), ("country",))
    assert partitions(warehouse) == [f"date=2026-03-{number:02d}" for number in (1, 2, 3, 4)]
    assert sorted(map(str, values(warehouse, "country")[:2])) == ["Côte d'Ivoire", "None"]
    assert values(warehouse, "country")[2:] == ["DE", "DE", None, "DE", "DE"]
    path = write(root, "date=2026-03-05/country=DE", day(5, 2, country=["AT", "DE"]))
    assert add(warehouse, root).unread_levels == (
        f"country: {path} has a column of this name, with other values than its folder's DE",
    )
    assert values(warehouse, "country")[-2:] == ["AT", "DE"]


def test_a_level_that_files_have_in_another_type(warehouse: Warehouse, root: Path) -> None:
    write(root, "date=2026-03-01", day(1, region=[5] * ROWS))
    path = write(root, "date=2026-03-02/region=5", day(2))
    with pytest.raises(SchemaDrift) as caught:
        add(warehouse, root)
    assert (caught.value.where, caught.value.value, caught.value.allowed) == (
        f"{path}, column region",
        "string",
        "int64",
    )
    write(root, "date=2026-03-02/region=5", day(2, region=[5] * ROWS))
    assert add(warehouse, root).unread_levels == ()


def test_folders_of_one_day_are_one_partition(warehouse: Warehouse, root: Path) -> None:
    write(root, "country=DE/date=2026-03-01", day(1))
    write(root, "country=FR/date=2026-03-01", day(1))
    (root / "country=AT/date=2026-03-01").mkdir(parents=True)
    write(root, "ds=2026-03-01", day(1), "late.parquet")
    assert len(add(warehouse, root).added) == 1
    (root / "country=AT/date=2026-03-02").mkdir(parents=True)
    with pytest.raises(EmptyPartition) as caught:
        add(warehouse, root)
    assert caught.value.where == f"{root}/country=AT/date=2026-03-02"
    (root / "country=AT/date=2026-03-02").rmdir()
    write(root, "date=2026-03-01/hour=03", day(1))
    with pytest.raises(DataError, match="must not overlap in time"):
        add(warehouse, root)


@pytest.mark.parametrize(
    "folder", ["country=DE", "year=2026/month=03", "date=2026-03-01/sub", "date=2026-13-01", "dt=20260230"]
)
def test_folders_that_state_no_day(warehouse: Warehouse, root: Path, folder: str) -> None:
    path = write(root, folder, day(1))
    with pytest.raises(DataError, match="must be a time partition") as caught:
        add(warehouse, root)
    assert caught.value.where == str(path)
    assert "headrace table import NAME FOLDER --time-column COLUMN" in caught.value.next_step


def test_side_files_of_writers(warehouse: Warehouse, root: Path, tmp_path: Path) -> None:
    write(root, "ds=2026-03-01", day(1))
    for name in ("_SUCCESS", "ds=2026-03-01/.part-0.parquet.crc", "ds=2026-03-01/_part.parquet", "_temporary/0/x.parquet",
                 "ds=2026-03-01/_temporary/x.parquet", ".staging/ds=2026-03-02/x.parquet"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"no Parquet")
    assert add(warehouse, root).rows == ROWS
    late = tmp_path / "late"
    write(late, "country=DE", day(1, 2, user=["a", "b"]))
    for name in ("_SUCCESS", "_temporary/x.parquet", "country=DE/.x.parquet", "country=DE/_x.parquet"):
        (late / name).parent.mkdir(parents=True, exist_ok=True)
        (late / name).write_bytes(b"no Parquet")
    done = append_rows(warehouse, "log", [str(late), str(late / "_SUCCESS")])
    assert (done.rows, done.added_columns) == (2, ("country",))
    assert values(warehouse, "country") == [None] * ROWS + ["DE"] * 2
    mirror = tmp_path / "mirror"
    write(mirror, "ds=2026-03-01", pa.table({"spam": [0.5] * ROWS}))
    (mirror / "ds=2026-03-01/_x.parquet").write_bytes(b"no Parquet")
    (mirror / "_SUCCESS").write_bytes(b"")
    assert overlay_columns(warehouse, "log", str(mirror)).rows == ROWS
    assert values(warehouse, "spam") == [0.5] * ROWS + [None] * 2


@pytest.mark.medium
def test_changes_of_a_table_with_levels(warehouse: Warehouse, root: Path, tmp_path: Path) -> None:
    for country in ("DE", "FR"):
        write(root, f"country={country}/ds=2026-03-01", day(1))
        write(root, f"country={country}/ds=2026-03-02", day(2))
    add(warehouse, root)
    submit(warehouse, country=hr.text("country").lower().hash_buckets(50))
    work(warehouse)
    assert delete_rows(warehouse, "log", where=[("country", "DE"), ("seat", "1")]).rows == 8
    pq.write_table(
        pa.table({"country": ["FR"], "seat": pa.array([2], pa.int8()), "clicked": [True]}), tmp_path / "v.parquet"
    )
    assert overlay_columns(warehouse, "log", str(tmp_path / "v.parquet"), on=["country", "seat"]).rows == 8
    pq.write_table(pa.table({"country": ["FR", "DE"], "land": ["Fr", "De"]}), tmp_path / "v.parquet")
    overlay_columns(warehouse, "log", str(tmp_path / "v.parquet"), on=["country"])
    assert values(warehouse, "land") == (["De"] * ROWS + ["Fr"] * ROWS) * 2
    pq.write_table(pa.table({"seat": pa.array([4], pa.int8()), "country": ["AT"]}), tmp_path / "v.parquet")
    fix_columns(warehouse, "log", str(tmp_path / "v.parquet"), on=["seat"], why="moved")
    changed = [("AT" if i % 5 == 4 else country) for country in ("DE", "FR") for i in range(ROWS)]
    assert values(warehouse, "country") == changed * 2
    assert [columns for _, columns in work(warehouse)] == ["country", "country"]
    pq.write_table(day(2, 2, user=["x", "y"], country=["DE", None]), tmp_path / "late.parquet")
    assert append_rows(warehouse, "log", [str(tmp_path / "late.parquet")], unique_by=["user", "country"]).rows == 2
    (late,) = root.rglob("late-*.parquet")
    assert late.parent == root / "ds=2026-03-02"
    assert values(warehouse, "country")[-2:] == ["DE", None]
    assert add(warehouse, root).unchanged == 2
    work(warehouse)
    read = values(warehouse, "country")
    assert compact_table(warehouse, "log", ended_before=warehouse.clock() + 10**9).merged
    assert (values(warehouse, "country"), work(warehouse)) == (read, [])
    assert verify_warehouse(warehouse, recompute=20).findings == ()
    assert [one.kind for one in history(warehouse)] == ["register", "delete", "overlay", "overlay", "fix", "append"]


def test_a_root_that_moves_up_gets_a_level(warehouse: Warehouse, tmp_path: Path) -> None:
    root = tmp_path / "log"
    write(root, "country=DE/date=2026-03-01", day(1))
    add(warehouse, root / "country=DE")
    assert "country" not in {column.name for column in the_table(warehouse).columns}
    found = add(warehouse, root)
    assert [change.text for change in found.schema_changes] == ["new country, string"]
    assert values(warehouse, "country") == ["DE"] * ROWS
    assert add(warehouse, root).unchanged == 1


@pytest.mark.slow
@settings(max_examples=scaled(8))
@given(st.integers(0, 10**9))
def test_levels_are_the_columns_that_files_could_have(seed: int) -> None:
    """A log with columns in its folders is the log with these columns in its files: equal rows, and equal memos."""
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="headrace-levels-"))
    texts = ["DE", "", "é/ö", "a=b", "100%", " ", "日本", "x" * 40]
    names = chance.sample(["country", "device type", "größe", "a=b"], chance.randint(1, 3))
    try:
        with Warehouse.open(
            WarehouseConfig(str(folder / "home"), read_threads=1, rates=FREE_READS), Clock()
        ) as warehouse:
            for number in range(1, chance.randint(2, 4)):
                for part in range(2):
                    levels = {name: chance.choice([None, *texts]) for name in names}
                    rows = chance.randint(1, 5)
                    time = chance.choice(
                        [f"date=2026-03-{number:02d}", f"dt=202603{number:02d}", f"year=2026/month=3/day={number}"]
                    )
                    encoded = [_encoded(name, value) for name, value in levels.items()]
                    path = "/".join([*encoded[:part], time, *encoded[part:]])
                    plain = day(number, rows, user=[f"{number} {part} {i}" for i in range(rows)])
                    write(folder / "levels", path, plain, f"{part}.parquet")
                    columns = {name: pa.array([value] * rows, pa.string()) for name, value in levels.items()}
                    write(
                        folder / "files",
                        f"date=2026-03-{number:02d}",
                        day(number, rows, user=plain["user"], **columns),
                        f"{part}.parquet",
                    )
            add(warehouse, folder / "files", "files")
            inputs: dict[str, Any] = {f"i{at}": hr.text(name).lower().hash_buckets(50) for at, name in enumerate(names)}
            submit(warehouse, "one", "files", **inputs)
            work(warehouse)
            add(warehouse, folder / "levels", "levels")
            submit(warehouse, "two", "levels", **inputs)
            held = [placed.fragment for placed in _placed(warehouse, "levels")]
            nulls = any(overlay.is_absent for fragment in held for overlay in fragment.overlays)
            assert nulls or work(warehouse) == [], "the same content, so the same memos"
            work(warehouse)
            assert _rows(warehouse, "two", names) == _rows(warehouse, "one", names)
    finally:
        shutil.rmtree(folder)


def _encoded(name: str, value: str | None) -> str:
    return f"{quote(name, safe='')}={'__HIVE_DEFAULT_PARTITION__' if value is None else quote(value, safe='')}"


def _placed(warehouse: Warehouse, table: str) -> Any:
    with warehouse.catalog.read() as connection:
        return current_fragments(connection, table)


def _rows(warehouse: Warehouse, model: str, names: list[str]) -> list[dict[str, Any]]:
    solution = read_solution(warehouse, model)
    assert solution.count("compute") == 0
    rows: list[dict[str, Any]] = []
    for fragment in solution.fragments:
        table = read_fragment(warehouse.storage, solution, fragment, columns=[*names, "time", "user"])
        rows += table.rename_columns([*table.column_names[:-1], "user name"]).to_pylist()
    return sorted(rows, key=lambda row: str(row["user name"]))
