"""Fixtures of the tests of ``warehouse``: a log on disk, a manual clock, an open warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.warehouse.scenes import FREE_READS, Clock, write_log
from warehouse import Warehouse, WarehouseConfig, register_table


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def warehouse(tmp_path: Path, clock: Clock, catalog_url: str) -> Iterator[Warehouse]:
    with Warehouse.open(
        WarehouseConfig(str(tmp_path / "home"), catalog_url, read_threads=1, rates=FREE_READS), clock
    ) as opened:
        yield opened


@pytest.fixture
def log(tmp_path: Path, warehouse: Warehouse) -> Path:
    """The folder of table ``log``: three hours, 20 events each, registered."""
    root = write_log(tmp_path / "log")
    register_table(warehouse, "log", str(root))
    return root
