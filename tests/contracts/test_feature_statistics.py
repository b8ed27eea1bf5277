"""Statistics of features in the catalog: samples count once, and writers at one time lose none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import select

from tests.contracts.test_catalog_contract import run_together
from tests.warehouse.scenes import start
from warehouse import Warehouse, WarehouseConfig
from warehouse.catalog import schema
from warehouse.models.feature_statistics import (
    KEPT_EPOCHS,
    KEPT_VERSIONS,
    Document,
    Sample,
    newest_statistics,
    record_sample,
)


def add(old: Document | None, new: Document) -> Document:
    return {"sum": (old or {"sum": 0})["sum"] + new["sum"]}


@pytest.fixture
def warehouse(config: WarehouseConfig) -> Iterator[Warehouse]:
    with Warehouse.open(config) as opened:
        yield opened


def sample(run: str, epoch: int, host: str = "process", **sums: int) -> Sample:
    return Sample(run, epoch, host, {name: {"sum": value} for name, value in sums.items()})


def sums(warehouse: Warehouse) -> dict[str, tuple[int, int]]:
    with warehouse.catalog.read() as connection:
        return {key: (one.document["sum"], one.version) for key, one in newest_statistics(connection).items()}


def test_a_sample_counts_once(warehouse: Warehouse) -> None:
    assert record_sample(warehouse, sample("r", 1, a=1, b=10), add)
    assert not record_sample(warehouse, sample("r", 1, a=1, b=10), add)
    assert record_sample(warehouse, sample("r", 1, "other", a=100), add)
    assert record_sample(warehouse, sample("s", 1, a=1000), add)
    assert sums(warehouse) == {"a": (1101, 3), "b": (10, 1)}
    with warehouse.catalog.read() as connection:
        assert set(newest_statistics(connection, ["b", "c"])) == {"b"}


@pytest.mark.slow
def test_old_versions_and_epochs_are_bounded(warehouse: Warehouse) -> None:
    for epoch in range(KEPT_EPOCHS + 3):
        assert record_sample(warehouse, sample("r", epoch, a=1), add)
    assert sums(warehouse) == {"a": (KEPT_EPOCHS + 3, KEPT_EPOCHS + 3)}
    with warehouse.catalog.read() as connection:
        versions = connection.execute(select(schema.feature_statistics.c.version)).scalars().all()
        epochs = connection.execute(select(schema.feature_samples.c.epoch)).scalars().all()
    assert (len(versions), len(epochs)) == (KEPT_VERSIONS, KEPT_EPOCHS)
    assert not record_sample(warehouse, sample("r", 0, a=1), add)  # older than what is remembered


_WRITER = """
import sys
from warehouse import Warehouse, WarehouseConfig
from warehouse.models.feature_statistics import Sample, record_sample
warehouse = Warehouse.open(WarehouseConfig(sys.argv[1], sys.argv[2]))
add = lambda old, new: {"sum": (old or {"sum": 0})["sum"] + new["sum"]}
print("ready", flush=True)
sys.stdin.readline()
for epoch in range(30):
    for _ in range(2):  # a record that is repeated counts once
        record_sample(warehouse, Sample(sys.argv[3], epoch, "process", {"a": {"sum": 1}, "b": {"sum": 2}}), add)
"""


@pytest.mark.slow
def test_writers_at_one_time_lose_nothing(warehouse: Warehouse, config: WarehouseConfig) -> None:
    run_together([start(_WRITER, config.home, config.url, run) for run in ("r", "s", "r")])
    assert sums(warehouse) == {"a": (60, 60), "b": (120, 60)}
