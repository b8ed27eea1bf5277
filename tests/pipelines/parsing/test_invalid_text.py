"""A real worker reads a registered column with text that is not UTF-8."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

import headrace as hr
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.transforms.kernels.test_text_validity import as_text
from tests.warehouse.scenes import FREE_READS
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model
from warehouse.catalog import schema as catalog
from warehouse.tables import parquet as parquet_files


def test_what_an_earlier_release_registered_fails_what_reads_it_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log/date=2026-01-01/part.parquet"
    path.parent.mkdir(parents=True)
    rows = 500
    cities = as_text([b"Z\xfcrich \xf0" * 9 if row % 7 == 3 else b"Bern" for row in range(rows)])
    log = pa.table({"city": cities, "n": pa.array(range(rows), pa.int64()), "clicked": pa.array([True] * rows)})
    pq.write_table(log, path, store_schema=False)
    model = hr.Model("it", client="c", label="clicked", table="log")
    model.input("city", hr.text("city").strip().lower().hash_buckets(100))
    model.input("distance", hr.text("city").edit_distance(hr.text("city").lower()))
    model.input("n", hr.int64("n") * 2)
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), max_attempts=1, rates=FREE_READS)) as warehouse:
        with monkeypatch.context() as earlier:
            earlier.setattr(parquet_files, "_validate_text", lambda table, *_: table)
            register_table(warehouse, "log", str(tmp_path / "log"))
        submit_model(warehouse, model)
        report = run_worker(warehouse, WorkerConfig("tester", runner_workers=1, poll_secs=0.01), until_idle=True)
        assert report.memos == 1
        with warehouse.catalog.read() as connection:
            memos = catalog.memos
            ready = connection.execute(select(memos.c.fingerprint).where(memos.c.state == "READY")).scalars().all()
    assert ready == [model.inputs["n"].fingerprint]
    assert len(report.errors) == 1
    (said,) = report.errors
    assert f"{path}, column city, row 3" in str(said)
    assert "text must be UTF-8" in str(said)
