"""A home for real workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from warehouse import Warehouse, WarehouseConfig


@pytest.fixture
def make_home(tmp_path: Path) -> Callable[[], Path]:
    """Makes an empty home."""

    def make() -> Path:
        with Warehouse.open(WarehouseConfig(str(tmp_path / "home"))):
            return tmp_path / "home"

    return make
