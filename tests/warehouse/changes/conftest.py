"""A log with keys and times, registered in fragments of 4 and 2 events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.warehouse.changes.scenes import write_log
from tests.warehouse.scenes import Clock
from warehouse import Warehouse, WarehouseConfig, register_table


@pytest.fixture
def warehouse(tmp_path: Path, clock: Clock) -> Iterator[Warehouse]:
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), fragment_rows=4, read_threads=1), clock) as opened:
        yield opened


@pytest.fixture
def log(tmp_path: Path, warehouse: Warehouse) -> Path:
    root = write_log(tmp_path / "log")
    register_table(warehouse, "log", str(root), time_column="time")
    return root
