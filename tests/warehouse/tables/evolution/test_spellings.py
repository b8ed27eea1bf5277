"""The same rows in files of other types, order and arrival are the same table, with the same memo values."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import transforms.expressions.expression as hr
from tests.support.examples import scaled
from tests.warehouse.scenes import FREE_READS, Clock
from tests.warehouse.tables.evolution.scenes import add, day, submit, the_table, work
from warehouse import Warehouse, WarehouseConfig, read_fragment, read_solution
from warehouse.changes.append import append_rows
from warehouse.tables.evolution.schema import merged_column
from warehouse.tables.manifests import PlacedFragment, current_fragments
from warehouse.tables.raw import read_raw
from warehouse.tables.table import ColumnSchema

#: The types of each column, the widest last; a file takes any that holds its values.
KINDS: dict[str, list[pa.DataType]] = {
    "k": [pa.int8(), pa.uint16(), pa.int32(), pa.int64()],
    "price": [pa.float16(), pa.float32(), pa.float64()],
    "city": [pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.string()],
    "tags": [pa.list_(pa.int16()), pa.large_list(pa.int32()), pa.list_(pa.int64())],
    "at": [pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")],
    "amount": [pa.decimal128(6, 1), pa.decimal128(10, 2)],
}  # fmt: skip
INPUTS = {
    "k": hr.int64("k").hash_buckets(1000),
    "price": hr.float64("price").fill_null(-1.0).log1p(),
    "city": hr.text("city").lower().hash_buckets(50),
    "tags": hr.ragged("tags", "int64").hash_buckets(50),
    "at": hr.timestamp("at").hour_of_day(),
    "amount": hr.float64("amount").fill_null(0.0) + 1.0,
}


def column(name: str, rows: int, chance: random.Random) -> pa.Array:
    """Values of a column in its widest type: few, many or none, some of which need it."""
    wide = KINDS[name][-1]
    nulls = chance.choice([0.0, 0.3, 1.0])
    bits = chance.choice([6, 20, 40])
    draw = {
        "k": lambda: chance.randrange(2**bits),
        "price": lambda: chance.choice([0.5, 1.25, 0.1 if bits == 40 else 2.0]),
        "city": lambda: chance.choice(["Köln", "", "Bonn"]),
        "tags": lambda: [chance.randrange(2**bits) for _ in range(chance.randrange(3))],
        "at": lambda: chance.randrange(10**5) * (10**9 if bits < 40 else 10**6),
        "amount": lambda: f"{chance.randrange(1000)}.{chance.choice(['0', '5', '25'] if bits == 40 else ['0', '5'])}",
    }[name]
    drawn = [None if chance.random() < nulls else draw() for _ in range(rows)]
    if name == "amount":
        return pa.array(drawn, pa.string()).cast(wide)
    return pa.array(drawn, pa.int64()).cast(wide) if name == "at" else pa.array(drawn, wide)


def respelled(table: pa.Table, chance: random.Random, *, absent: bool) -> pa.Table:
    """The same rows in other types and another order of columns; ``absent``: columns of nulls alone may be left out."""
    columns: dict[str, Any] = {}
    for name in chance.sample(table.column_names, table.num_columns):
        values = table.column(name)
        if name in KINDS:
            fitting = [kind for kind in KINDS[name] if _fits(values, kind)]
            if values.null_count == len(values):
                fitting = [pa.null(), *([None] if absent else []), *fitting]
            kind = chance.choice(fitting)
            if kind is None:
                continue
            values = pa.nulls(len(values)) if pa.types.is_null(kind) else values.cast(kind)
        columns[name] = values
    return pa.table(columns)


def _fits(values: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        return bool(values.cast(kind).cast(values.type).equals(values))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False


def rows_of(warehouse: Warehouse, table: str) -> dict[str, list[Any]]:
    """The table by column, ordered by the number of the event."""
    names = sorted([column.name for column in the_table(warehouse, table).columns])
    rows = []
    for placed in placed_of(warehouse, table):
        rows += read_raw(warehouse.storage, placed.fragment, names).to_pylist()
    rows.sort(key=lambda row: row["event"])
    return {name: [row[name] for row in rows] for name in names}


def inputs_of(warehouse: Warehouse, model: str) -> dict[str, list[Any]]:
    """The inputs of a model, all of them memos, ordered by the number of the event."""
    solution = read_solution(warehouse, model)
    assert solution.count("compute") == 0
    parts = [read_fragment(warehouse.storage, solution, one, columns=["event"]) for one in solution.fragments]
    return pa.concat_tables(parts).sort_by("event").to_pydict()


def log_files(chance: random.Random) -> dict[str, pa.Table]:
    """The rows of each file of a log of a few days, in the widest types."""
    names = chance.sample(list(KINDS), chance.randint(2, len(KINDS)))
    files: dict[str, pa.Table] = {}
    for number in range(1, chance.randint(2, 4)):
        for part in range(chance.randint(1, 2)):
            rows = chance.randint(1, 6)
            table = day(number, rows, event=pa.array(range(len(files) * 10, len(files) * 10 + rows)))
            for name in names:
                table = table.append_column(name, column(name, rows, chance))
            files[f"date=2026-03-{number:02d}/{part}.parquet"] = table
    return files


def write_file(root: Path, path: str, table: pa.Table) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, root / path)


def submit_readable(warehouse: Warehouse, name: str, table: str, columns: Iterable[str]) -> None:
    """Submit a model of those of ``columns`` that have a type in table ``spelled``."""
    typed = {one.name for one in the_table(warehouse, "spelled").columns if one.arrow_type != "null"}
    submit(warehouse, name, table, **{one: INPUTS[one] for one in columns if one in INPUTS and one in typed})


def check(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    files = log_files(chance)
    uniform, spelled = folder / "uniform", folder / "spelled"
    for path, table in files.items():
        write_file(uniform, path, table)
    arrivals = chance.sample(list(files), len(files))
    first = arrivals[: chance.randint(1, len(arrivals))]
    config = WarehouseConfig(str(folder / "home"), read_threads=1, rates=FREE_READS)
    with Warehouse.open(config, Clock()) as warehouse:
        for path in first:
            write_file(spelled, path, respelled(files[path], chance, absent=True))
        add(warehouse, spelled, "spelled")
        columns = [column.name for column in the_table(warehouse, "spelled").columns]
        submit_readable(warehouse, "early", "spelled", columns)
        work(warehouse)
        known = {placed.fragment.path for placed in placed_of(warehouse)}
        for path in arrivals[len(first) :]:
            table = respelled(files[path], chance, absent=False)
            if chance.random() < 0.5:
                write_file(spelled, path, table)
                add(warehouse, spelled, "spelled")
            else:
                pq.write_table(table, folder / "late.parquet")
                append_rows(warehouse, "spelled", [str(folder / "late.parquet")], create=True)
        computed: list[str] = []
        work(warehouse, computed)
        assert known.isdisjoint(computed), "memos of files that were there stay valid"
        check_equal(warehouse, uniform, spelled)
        for path in files:
            if (spelled / path).exists():
                write_file(spelled, path, respelled(files[path], chance, absent=False))
        add(warehouse, spelled, "spelled")
        assert work(warehouse) == [], "a backfill of equal values in any types computes nothing"
        check_equal(warehouse, uniform, spelled)


def check_equal(warehouse: Warehouse, uniform: Path, spelled: Path) -> None:
    """Both logs have the same rows, and models over them the same inputs."""
    add(warehouse, uniform, "uniform")
    found, expected = rows_of(warehouse, "spelled"), rows_of(warehouse, "uniform")
    assert found == {name: expected[name] for name in found}
    assert all(set(map(str, expected[name])) == {"None"} for name in expected.keys() - found.keys())
    for name, table in (("one", "uniform"), ("two", "spelled")):
        submit_readable(warehouse, name, table, found)
    work(warehouse)
    assert inputs_of(warehouse, "two") == inputs_of(warehouse, "one")


def placed_of(warehouse: Warehouse, table: str = "spelled") -> tuple[PlacedFragment, ...]:
    with warehouse.catalog.read() as connection:
        return current_fragments(connection, table)


def check_in_a_folder(seed: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="headrace-spellings-"))
    try:
        check(folder, seed)
    finally:
        shutil.rmtree(folder)


@pytest.mark.medium
@settings(max_examples=scaled(6))
@given(st.integers(0, 10**9))
@example(237)  # the type of all values is that of a later file, too, which has nulls alone
def test_other_spellings_are_the_same_table(seed: int) -> None:
    check_in_a_folder(seed)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.integers(0, 10**9))
def test_other_spellings_at_length(seed: int) -> None:
    check_in_a_folder(seed)


def test_a_type_of_all_values_that_a_later_file_has_is_kept() -> None:
    """int8 and uint16 are read as int32, which no file holds until one comes with it: its values are digested in it, after int64 too."""
    found = ColumnSchema("k", "int8")
    for stored in ("uint16", "int32", "int32", "int64"):
        merged = merged_column(found, ColumnSchema("k", stored))
        assert merged is not None
        found = merged
    assert (found.arrow_type, found.stored_types) == ("int64", ("int8", "uint16", "int32", "int64"))
