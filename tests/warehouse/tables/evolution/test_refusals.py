"""Files that do not fit a table, or that live models could not read, are refused: the file, the models and the next step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.tables.evolution.scenes import add, column_of, day, submit, the_table, values, work, write
from transforms.errors import UnknownColumn
from warehouse import Warehouse, register_table
from warehouse.changes.append import append_rows
from warehouse.changes.overlay import overlay_columns
from warehouse.errors import SchemaDrift
from warehouse.models.retire import retire_model
from warehouse.tables.evolution.evolved import check_log_schema
from warehouse.tables.table import ColumnSchema


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log of one day with columns of several types."""
    write(tmp_path / "log", 1, day(1, k=pa.array(range(20), pa.int32()), price=pa.array([0.5] * 20, pa.float32())))
    return tmp_path / "log"


def refused(warehouse: Warehouse, action: Callable[[], object]) -> SchemaDrift:
    before = the_table(warehouse)
    with pytest.raises(SchemaDrift) as caught:
        action()
    assert the_table(warehouse) == before
    return caught.value


#: Columns of another meaning, and a part of what the error advises for ``add``.
CONFLICTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "text": ({"k": ["1"] * 20}, "string", "write the file with int32"),
    "float": ({"k": [0.5] * 20}, "double", 'frame["k"].astype("Int64")'),
    "uint64": ({"k": pa.array(range(20), pa.uint64())}, "uint64", "headrace table add log_2 FOLDER"),
    "list": ({"k": pa.array([[1]] * 20)}, "list<element: int64>", "write the file with int32"),
    "bool": ({"k": [True] * 20}, "bool", "write the file with int32"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONFLICTS)
def test_a_changed_meaning(warehouse: Warehouse, root: Path, case: str) -> None:
    columns, found, advice = CONFLICTS[case]
    add(warehouse, root)
    path = write(root, 2, day(2, **columns))
    error = refused(warehouse, lambda: add(warehouse, root))
    assert (error.where, error.value, error.allowed) == (f"{path}, column k", found, "int32")
    assert error.what == "a file of table 'log' has a column of another type"
    assert advice in error.next_step
    submit(warehouse, "b", k=hr.int64("k").hash_buckets(9))
    submit(warehouse, "a", k=hr.int64("k") + 1)
    submit(warehouse, "other")
    assert refused(warehouse, lambda: add(warehouse, root)).what.endswith("which live models read: a, b")


def test_each_command_says_its_next_step(warehouse: Warehouse, root: Path, tmp_path: Path) -> None:
    add(warehouse, root)
    submit(warehouse, label="k")
    path = tmp_path / "rows.parquet"
    pq.write_table(day(1, 2, k=["1", "2"]), path)
    appended = refused(warehouse, lambda: append_rows(warehouse, "log", [str(path)]))
    assert appended.where == f"{path}, column k"
    assert appended.next_step == "cast the column to int32 in the file, then append it again"
    assert "live models read: m" in appended.what
    keyed = refused(warehouse, lambda: overlay_columns(warehouse, "log", str(path), on=["user"], columns=["k"]))
    mirror = write(tmp_path / "mirror", 1, pa.table({"k": ["1"] * 20}))
    aligned = refused(warehouse, lambda: overlay_columns(warehouse, "log", str(tmp_path / "mirror")))
    for overlaid, source in ((keyed, path), (aligned, mirror)):
        assert (overlaid.where, overlaid.value, overlaid.allowed) == (f"{source}, column k", "string", "int32")
        assert overlaid.next_step == "write the values as int32, or under another name"
        assert overlaid.what.endswith("which live models read: m")
    columns = [ColumnSchema(field.name, str(field.type)) for field in day(1, k=["1"] * 20).schema]
    imported = refused(
        warehouse, lambda: check_log_schema(warehouse.catalog, the_table(warehouse), columns, "rows.json", "time")
    )
    assert imported.where == "rows.json, column k"
    assert "declare it so in the schema file" in imported.next_step
    assert "headrace table import log_2 FILES" in imported.next_step


REMOVED = "a file of table 'log' lacks a column that live models read: m"


def test_a_removed_column_that_a_live_model_reads(warehouse: Warehouse, root: Path, tmp_path: Path) -> None:
    add(warehouse, root)
    submit(warehouse, k=hr.int64("k").hash_buckets(9))
    path = write(root, 2, day(2, price=pa.array([0.5] * 20, pa.float32())))
    error = refused(warehouse, lambda: add(warehouse, root))
    assert (error.what, error.where, error.value) == (REMOVED, f"{path}, column k", "absent")
    assert "with nulls where it has no values" in error.next_step
    assert "headrace model retire m" in error.next_step
    late = tmp_path / "late.parquet"
    pq.write_table(day(1, 2), late)
    assert refused(warehouse, lambda: append_rows(warehouse, "log", [str(late)])).what == REMOVED
    columns = [ColumnSchema(field.name, str(field.type)) for field in day(1).schema]
    found = refused(
        warehouse, lambda: check_log_schema(warehouse.catalog, the_table(warehouse), columns, "s.json", "time")
    )
    assert (found.what, found.where) == (REMOVED, "s.json, column k")
    assert "declare the column in the schema file" in found.next_step
    # Each of the three next steps works.
    pq.write_table(day(2, k=pa.nulls(20)), path)
    add(warehouse, root)
    pq.write_table(day(2), path)
    add(warehouse, root)  # the partition had no values of it
    write(root, 3, day(3))
    assert refused(warehouse, lambda: add(warehouse, root)).what == REMOVED
    retire_model(warehouse, "m")
    add(warehouse, root)
    assert values(warehouse, "k") == [*range(20), *[None] * 40]


@pytest.mark.medium
def test_days_before_a_column_began_need_not_have_it(warehouse: Warehouse, tmp_path: Path) -> None:
    root = tmp_path / "log"
    write(root, 5, day(5))
    write(root, 6, day(6, k=list(range(20))))
    add(warehouse, root)
    submit(warehouse, k=hr.int64("k").hash_buckets(9))
    write(root, 4, day(4))  # a backfill of older days
    write(root, 5, day(5, 3), name="late.parquet")
    add(warehouse, root)
    path = tmp_path / "late.parquet"
    pq.write_table(day(4, 2, user=["x", "y"]), path)
    assert append_rows(warehouse, "log", [str(path)]).rows == 2
    pq.write_table(day(6, 2, user=["x", "y"]), path)
    assert refused(warehouse, lambda: append_rows(warehouse, "log", [str(path)])).where == f"{path}, column k"
    assert work(warehouse)


def test_a_label_that_files_leave_out_is_overlaid_as_before(warehouse: Warehouse, root: Path, tmp_path: Path) -> None:
    add(warehouse, root)
    pq.write_table(pa.table({"time": day(1)["time"], "bought": [True] * 20}), tmp_path / "v.parquet")
    overlay_columns(warehouse, "log", str(tmp_path / "v.parquet"), on=["time"])
    submit(warehouse, label="bought")
    write(root, 2, day(2))
    add(warehouse, root)
    assert values(warehouse, "bought") == [True] * 20 + [None] * 20


def test_a_type_wider_than_a_live_model_declares(warehouse: Warehouse, root: Path, tmp_path: Path) -> None:
    add(warehouse, root)
    submit(warehouse, "narrow", price=hr.float32("price").log1p())
    path = write(root, 2, day(2, price=[0.1] * 20))
    error = refused(warehouse, lambda: add(warehouse, root))
    assert error.what == "a file of table 'log' holds a column in a wider type than live model narrow declares"
    assert (error.where, error.value, error.allowed) == (f"{path}, column price", "double", "Dense[float32]")
    assert "headrace model retire narrow" in error.next_step
    values_path = tmp_path / "v.parquet"
    pq.write_table(pa.table({"time": day(1)["time"], "price": [2**200.0] * 20}), values_path)
    assert not overlay_columns(warehouse, "log", str(values_path), on=["time"], dry_run=True).widened_columns
    submit(warehouse, "narrow", price=hr.float64("price").log1p())
    add(warehouse, root)
    assert column_of(warehouse, "price").arrow_type == "double"


def test_a_file_without_the_time_column(warehouse: Warehouse, root: Path, tmp_path: Path) -> None:
    add(warehouse, root)
    path = write(root, 2, day(2, time=None))
    error = refused(warehouse, lambda: add(warehouse, root))
    assert (error.what, error.where) == ("a file of table 'log' lacks the time column", f"{path}, column time")
    pq.write_table(day(2, 2, time=None), tmp_path / "late.parquet")
    assert (
        "lacks the time column"
        in refused(warehouse, lambda: append_rows(warehouse, "log", [str(tmp_path / "late.parquet")])).what
    )
    with pytest.raises(UnknownColumn):
        register_table(warehouse, "other", str(root), time_column="tme")
