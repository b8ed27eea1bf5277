"""Columns of types that no model reads: the table is registered, with a cast for each column."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.scenes import events, work, write_partition
from transforms.errors import DataError, TypeMismatch
from transforms.expressions.expression import Expr
from transforms.expressions.model import Model
from warehouse import Warehouse, list_tables, register_table, submit_model
from warehouse.files.digests import column_digest
from warehouse.tables.readable_types import declared_types, unreadable_column
from warehouse.tables.table import ColumnSchema

DAY = datetime.date(2026, 1, 1)
ODD = {
    "clock": pa.array([datetime.time(7, 50)] * 20, pa.time32("s")),
    "noon": pa.array([datetime.time(12)] * 20, pa.time64("us")),
    "spent": pa.array([3] * 20, pa.duration("s")),
    "geo": pa.array([{"country": "cn", "city": "x"}] * 20),
    "uuid": pa.array([b"0123456789abcdef"] * 20, pa.binary(16)),
    "none": pa.nulls(20),
    "money": pa.array([Decimal("1.25")] * 20, pa.decimal128(38, 2)),
    "huge": pa.array([Decimal(7)] * 20, pa.decimal128(38, 0)),
    "kept": pa.array([[("a", 1)]] * 20, pa.map_(pa.string(), pa.int64())),
    "stops": pa.array([[{"at": 1}]] * 20),
}
FINE = {
    "id": pa.array([2**63 - 1] * 20, pa.uint64()),
    "day": pa.array([DAY] * 20, pa.date32()),
    "cost": pa.array([Decimal("1.25")] * 20, pa.decimal128(10, 2)),
    "raw": pa.array([b"ab"] * 20, pa.binary()),
}


def one_input(expression: Expr) -> Model:
    made = Model("m", client="c", label="clicked", table="log")
    made.input("it", expression)
    return made


def test_a_table_with_odd_columns_is_registered_and_they_are_named(warehouse: Warehouse, tmp_path: Path) -> None:
    write_partition(tmp_path / "log", 0, events(20, **ODD, **FINE))
    found = register_table(warehouse, "log", str(tmp_path / "log"))
    assert [one.name for one in found.unreadable] == list(ODD)
    assert found.unfit == ()
    assert submit_model(warehouse, one_input(hr.text("query").lower())).queued == 1
    assert work(warehouse) == 1


def test_a_model_that_reads_an_odd_column_is_refused_with_the_cast(warehouse: Warehouse, tmp_path: Path) -> None:
    write_partition(tmp_path / "log", 0, events(20, **ODD))
    register_table(warehouse, "log", str(tmp_path / "log"))
    for name, column in ODD.items():
        with pytest.raises(TypeMismatch) as caught:
            submit_model(warehouse, one_input(hr.int64(name) + 1))
        error = caught.value
        assert name in error.what
        assert str(column.type).partition("<")[0].partition("[")[0] in str(error.value)
        assert error.next_step.startswith("store ")


@pytest.mark.parametrize("name", ["clock", "noon", "spent", "uuid", "none", "money", "huge"])
def test_the_cast_in_the_sentence_gives_a_column_that_a_model_reads(name: str) -> None:
    found = unreadable_column(ColumnSchema(name, str(ODD[name].type)))
    assert found is not None
    cast = found.cast.partition("in pyarrow: ")[2] or found.cast.partition(", ")[2].partition(", or")[0]
    made = eval(cast, {"table": pa.table({name: ODD[name]}), "pa": pa, "pc": pc})
    assert declared_types(str(made.type))
    assert made.null_count == ODD[name].null_count


def test_flattening_a_nested_object_gives_columns_that_a_model_reads() -> None:
    flat = pa.table({"geo": ODD["geo"]}).flatten()
    assert set(flat.column_names) == {"geo.country", "geo.city"}
    assert all(declared_types(str(field.type)) for field in flat.schema)


def test_every_readable_type_is_computed_from(warehouse: Warehouse, tmp_path: Path) -> None:
    write_partition(tmp_path / "log", 0, events(20, **FINE))
    register_table(warehouse, "log", str(tmp_path / "log"))
    model = one_input(hr.int64("id") - 1)
    model.input("hour", hr.timestamp("day").hour_of_day())
    model.input("cost", hr.float64("cost") + 1.0)
    model.input("raw", hr.text("raw").lower())
    assert submit_model(warehouse, model).queued == 4
    assert work(warehouse) == 4


def test_values_that_do_not_fit_are_said_at_registration(warehouse: Warehouse, tmp_path: Path) -> None:
    write_partition(
        tmp_path / "log", 0, events(20, id=pa.array([2**63] * 20, pa.uint64()), raw=pa.array([b"\xff"] * 20))
    )
    found = register_table(warehouse, "log", str(tmp_path / "log"))
    assert [text.partition(",")[0] for text in found.unfit] == ["id", "raw"]
    assert all("store" in text and "part.parquet" in text for text in found.unfit)


def test_a_declared_type_that_fits_the_stored_one_is_proposed(warehouse: Warehouse, tmp_path: Path) -> None:
    write_partition(tmp_path / "log", 0, events(20, **FINE))
    register_table(warehouse, "log", str(tmp_path / "log"))
    with pytest.raises(TypeMismatch, match="not stored as it is declared") as caught:
        submit_model(warehouse, one_input(hr.float32("cost")))
    assert "Dense[float64]" in caught.value.next_step


def test_an_extension_type_has_the_digest_of_its_storage(warehouse: Warehouse, tmp_path: Path) -> None:
    stored = pa.array([b"0123456789abcdef"] * 20, pa.binary(16))
    odd = pa.ExtensionArray.from_storage(pa.uuid(), stored)
    assert column_digest(odd) == column_digest(stored)
    write_partition(tmp_path / "log", 0, events(20, odd=odd))
    assert [one.name for one in register_table(warehouse, "log", str(tmp_path / "log")).unreadable] == ["odd"]


SENTINEL = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
AT = datetime.datetime(2026, 1, 1, 0, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "sentinel", "shown"),
    [
        (pa.timestamp("us", tz="UTC"), SENTINEL, "9999-12-31"),
        (pa.timestamp("ms"), SENTINEL.replace(tzinfo=None), "9999-12-31"),
        (pa.timestamp("s"), SENTINEL.replace(tzinfo=None), "9999-12-31"),
        (pa.timestamp("ns"), datetime.datetime(2262, 1, 1), "2262-01-01"),
        (pa.timestamp("ms"), 2**62, str(2**62)),
        (pa.timestamp("us"), datetime.datetime(2025, 12, 31, 23, 59, 59), "2025-12-31"),
        (pa.date32(), datetime.date(9999, 12, 31), "9999-12-31"),
        (pa.date64(), datetime.date(1, 1, 1), "0001-01-01"),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)  # fmt: skip
def test_a_time_outside_of_its_partition_names_file_row_and_value(
    warehouse: Warehouse, tmp_path: Path, kind: pa.DataType, sentinel: object, shown: str
) -> None:
    plain = AT.date() if pa.types.is_date(kind) else AT if kind.tz else AT.replace(tzinfo=None)
    good = pa.array([plain] * 20, kind)
    odd = pa.array([sentinel]).cast(kind) if isinstance(sentinel, int) else pa.array([sentinel], kind)
    times = pa.concat_arrays([good.slice(0, 7), odd, good.slice(8)])
    path = write_partition(tmp_path / "log", 0, events(20, time=times), row_group_size=5)
    with pytest.raises(DataError, match="must be in its partition") as caught:
        register_table(warehouse, "log", str(tmp_path / "log"), time_column="time", outside_times="refuse")
    assert caught.value.where == f"{path}, row 7, column time"
    assert shown in str(caught.value.value)
    assert "--outside-times keep" in caught.value.next_step
    assert list_tables(warehouse) == ()
    assert register_table(warehouse, "log", str(tmp_path / "log"), time_column="time").rows == 20


def test_times_in_their_partition_and_missing_ones_are_taken(warehouse: Warehouse, tmp_path: Path) -> None:
    times = pa.array([AT, None] * 10, pa.timestamp("us", tz="UTC"))
    write_partition(tmp_path / "log", 0, events(20, time=times))
    assert register_table(
        warehouse, "log", str(tmp_path / "log"), time_column="time", outside_times="refuse"
    ).rows == 20  # fmt: skip


def test_a_folder_of_the_last_day_of_the_calendar_is_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    write_partition(tmp_path / "log", 0, events(20))
    (tmp_path / "log/date=2026-01-01").rename(tmp_path / "log/date=9999-12-31")
    (tmp_path / "log/date=9999-12-31/hour=00").rename(tmp_path / "log/date=9999-12-31/hour=23")
    with pytest.raises(DataError, match="before the year 10000") as caught:
        register_table(warehouse, "log", str(tmp_path / "log"))
    assert caught.value.value == "date=9999-12-31/hour=23"
    assert list_tables(warehouse) == ()
