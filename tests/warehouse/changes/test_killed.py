"""A killed change leaves the old version of the table and unreferenced files."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.killing import KILLING
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.changes.scenes import column, events, overlay_files, save, version
from tests.warehouse.scenes import Clock, start
from warehouse import Warehouse, collect_garbage
from warehouse.changes.append import append_rows
from warehouse.changes.overlay import fix_columns

_CODE = f"""{KILLING}
import sys
from warehouse import Warehouse, WarehouseConfig
from warehouse.storage import storage
from warehouse.changes import append, overlay, publish
home, point, operation, path = sys.argv[1:]

if point == "between bytes and transaction":
    killing(publish, "begin_version", after=False)
elif point == "in the transaction":
    killing(publish, "write_manifests", after=True)
else:
    killing(storage.Storage, "write_atomic", after=True)
with Warehouse.open(WarehouseConfig(home, fragment_rows=4, read_threads=1)) as warehouse:
    if operation == "fix":
        overlay.fix_columns(warehouse, "log", path, on=["event_id"], why="x")
    else:
        append.append_rows(warehouse, "log", [path])
"""


@pytest.mark.medium
@pytest.mark.parametrize("operation", ["fix", "append"])
@pytest.mark.parametrize("point", ["after the first file", "between bytes and transaction", "in the transaction"])
def test_killed(warehouse: Warehouse, log: Path, tmp_path: Path, clock: Clock, point: str, operation: str) -> None:
    prices = column(warehouse, "price")
    if operation == "fix":
        values = {"event_id": [0, 200], "price": pa.array([50.0, 60.0], pa.float32())}
        path = save(tmp_path / "values.parquet", values)
    else:
        path = save(tmp_path / "late.parquet", pa.concat_tables([events(0, 2, 900), events(1, 1, 950)]))
    process = start(_CODE, warehouse.storage.home, point, operation, path)
    assert process.wait(PATIENCE_SECS) == -signal.SIGKILL, process.stderr and process.stderr.read()
    assert (version(warehouse), column(warehouse, "price")) == (1, prices)
    clock.now = 4e9
    swept = collect_garbage(warehouse, dry_run=False).garbage
    if operation == "fix":
        assert len(swept) == (1 if point == "after the first file" else 2)
        assert fix_columns(warehouse, "log", path, on=["event_id"], why="x").version == 2
        assert column(warehouse, "price") == [50.0, *prices[1:12], 60.0, *prices[13:]]
        assert (len(overlay_files(warehouse)), collect_garbage(warehouse, dry_run=False).garbage) == (2, ())
    else:
        assert append_rows(warehouse, "log", [path]).rows == 3
        assert column(warehouse, "event_id").count(900) == 1
