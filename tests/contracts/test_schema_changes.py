"""A schema that changes, on each database: versions, live models, and memos that stay."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.scenes import Clock
from tests.warehouse.tables.evolution.scenes import ROWS, add, changes, day, submit, values, work, write
from warehouse import Warehouse, WarehouseConfig
from warehouse.changes.append import append_rows
from warehouse.changes.overlay import overlay_columns
from warehouse.errors import SchemaDrift
from warehouse.maintenance.verify import verify_warehouse


def test_a_schema_that_changes(config: WarehouseConfig, clock: Clock, tmp_path: Path) -> None:
    root = tmp_path / "log"
    path = write(root, 1, day(1, k=pa.array(range(ROWS), pa.int32())))
    with Warehouse.open(config, clock) as warehouse:
        add(warehouse, root)
        submit(warehouse, k=hr.int64("k").hash_buckets(50))
        assert len(work(warehouse)) == 2
        write(root, 2, day(2, k=[2**40] * ROWS, score=[1.5] * ROWS))
        add(warehouse, root)
        pq.write_table(day(1, k=list(range(ROWS)), score=pa.nulls(ROWS)), path)  # a backfill of equal values
        add(warehouse, root)
        assert [columns for _, columns in work(warehouse)] == ["k", "user"], "the second day alone"
        pq.write_table(day(2, 1, user=["late"], k=[1], city=["x"]), tmp_path / "late.parquet")
        append_rows(warehouse, "log", [str(tmp_path / "late.parquet")])
        pq.write_table(pa.table({"user": ["late"], "spam": [0.5]}), tmp_path / "spam.parquet")
        overlay_columns(warehouse, "log", str(tmp_path / "spam.parquet"), on=["user"])
        write(root, 3, day(3))
        with pytest.raises(SchemaDrift, match="lacks a column that live models read: m"):
            add(warehouse, root)
        assert changes(warehouse) == [
            [], ["k from int32 to int64", "new score, double"], [], ["new city, string"], ["new spam, double"],
        ]  # fmt: skip
        assert values(warehouse, "k") == [*range(ROWS), *[2**40] * ROWS, 1]
        assert verify_warehouse(warehouse, recompute=20).findings == ()
