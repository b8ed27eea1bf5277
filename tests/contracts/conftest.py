"""Runs every contract of the catalog on every supported database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse.scenes import FREE_READS, Clock
from warehouse import WarehouseConfig


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a catalog that nobody opened yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/home/catalog.db"
    url: str = request.getfixturevalue("new_database")(migrated=False)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a catalog without rows."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/home/catalog.db"
    made: str = request.getfixturevalue("new_database")()
    return made


@pytest.fixture
def config(url: str, tmp_path: Path) -> WarehouseConfig:
    return WarehouseConfig(str(tmp_path / "home"), url, rates=FREE_READS)


@pytest.fixture
def clock() -> Clock:
    return Clock()
