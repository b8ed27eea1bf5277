"""Dropping a table, on each database; a killed process changes nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import events, model, start, work, write_partition
from warehouse import (
    Warehouse,
    WarehouseConfig,
    collect_garbage,
    delete_rows,
    list_tables,
    overlay_columns,
    register_table,
    submit_model,
    verify_warehouse,
)
from warehouse.changes.drop_table import drop_table, plan_drop

_CODE = """
import os, signal, sys
from warehouse import Warehouse, WarehouseConfig
from warehouse.changes import drop_table
home, url, point = sys.argv[1:]

def kill(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(drop_table, point, kill)
with Warehouse.open(WarehouseConfig(home, url)) as warehouse:
    drop_table.drop_table(warehouse, "log", force=True)
"""


def changed_table(warehouse: Warehouse, folder: Path) -> None:
    """A table of two hours with an overlay and a retraction, and a model over it that is computed."""
    for hour in range(2):
        write_partition(folder / "log", hour, events(20, seed=hour, id=pa.array(range(20 * hour, 20 * hour + 20))))
    register_table(warehouse, "log", str(folder / "log"))
    pq.write_table(pa.table({"id": [3], "price": pa.array([1.0], pa.float32())}), folder / "values.parquet")
    overlay_columns(warehouse, "log", str(folder / "values.parquet"), on=["id"])
    delete_rows(warehouse, "log", where=[("id", "7")])
    submit_model(warehouse, model())
    work(warehouse)


@pytest.mark.medium
def test_a_table_is_dropped_and_registered_again(config: WarehouseConfig, tmp_path: Path) -> None:
    with Warehouse.open(config) as warehouse:
        changed_table(warehouse, tmp_path)
        assert drop_table(warehouse, "log", force=True).memos == 4
        assert list_tables(warehouse) == ()
        collect_garbage(warehouse, dry_run=False, leftover_secs=-1e9)
        assert verify_warehouse(warehouse).findings == ()
        assert register_table(warehouse, "log", str(tmp_path / "log")).table.version == 5
        assert submit_model(warehouse, model()).queued == 4
        assert work(warehouse) == 4
        assert verify_warehouse(warehouse).findings == ()


@pytest.mark.medium
@pytest.mark.parametrize("point", ["_retire_models", "evict_memos", "record_change"])
def test_a_process_killed_while_it_drops_changes_nothing(config: WarehouseConfig, tmp_path: Path, point: str) -> None:
    with Warehouse.open(config) as warehouse:
        changed_table(warehouse, tmp_path)
        before = plan_drop(warehouse, "log")
    process = start(_CODE, config.home, config.catalog_url, point)
    assert process.wait(PATIENCE_SECS) == -signal.SIGKILL, process.stderr and process.stderr.read()
    with Warehouse.open(config) as warehouse:
        assert plan_drop(warehouse, "log") == before
        assert verify_warehouse(warehouse).findings == ()
        assert drop_table(warehouse, "log", force=True).done
