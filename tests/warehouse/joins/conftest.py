"""The two tables of the tests of joined columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse.joins.scenes import Folders, write_tables
from warehouse import Warehouse, register_table


@pytest.fixture
def folders(tmp_path: Path, warehouse: Warehouse) -> Folders:
    """The log and the clicks, registered, three hours of each."""
    made = write_tables(tmp_path)
    register_table(warehouse, "log", str(made.log), time_column="at")
    register_table(warehouse, "clicks", str(made.clicks), time_column="time")
    return made
