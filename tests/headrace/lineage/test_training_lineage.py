from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from headrace.cli.training_lineage import recorded_training
from tests.support.lineage_rules import checked_event
from tests.warehouse.scenes import model, work, write_log
from transforms.errors import HeadraceError, InputError
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model
from warehouse.catalog import schema
from warehouse.reading.pinned import pinned_solution
from warehouse.solution.solution import ReadSolution


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"))) as opened:
        register_table(opened, "log", str(write_log(tmp_path / "log")))
        submit_model(opened, model("ctr", inputs=2))
        work(opened)
        opened.config = replace(opened.config, lineage="http://127.0.0.1:1")
        yield opened


@pytest.fixture
def solution(warehouse: Warehouse) -> Iterator[ReadSolution]:
    with pinned_solution(warehouse, "ctr", holder="test") as found:
        yield found


def events(warehouse: Warehouse) -> list[dict[str, Any]]:
    with warehouse.catalog.read() as connection:
        found = connection.execute(select(schema.lineage_events.c.document).order_by(schema.lineage_events.c.id))
        return [checked_event(text) for text in found.scalars()]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (InputError("no space", value=1), "FAIL", "no space"),
        (ValueError("a defect"), "FAIL", "ValueError('a defect')"),
        (KeyboardInterrupt(), "ABORT", ""),
        (SystemExit(143), "ABORT", ""),
    ],
)
def test_a_training_that_fails_or_is_interrupted_has_an_end(warehouse, solution, tmp_path, error, kind, message):
    with pytest.raises(type(error)), recorded_training(warehouse, solution, str(tmp_path)):
        raise error
    start, end = events(warehouse)
    assert (start["eventType"], end["eventType"]) == ("START", kind)
    assert end["run"]["facets"].get("errorMessage", {}).get("message", "") == message
    names = [one["name"] for one in end["inputs"]]
    assert names[0] == "log"
    assert len([one for one in names if one.startswith("log/memos/")]) == 2, "memos that are loaded"


def test_each_commit_is_reported_once(warehouse, solution, tmp_path):
    with recorded_training(warehouse, solution, str(tmp_path)) as recorded:
        recorded.look()
        for name in ("epoch-000001", "epoch-000002"):
            (tmp_path / "checkpoints" / name).mkdir(parents=True)
            recorded.look()
            recorded.look()
    found = events(warehouse)
    versions = [one["outputs"][0]["facets"]["version"]["datasetVersion"] for one in found[1:]]
    assert [one["eventType"] for one in found] == ["START", "RUNNING", "RUNNING"]
    assert versions == ["epoch-000001", "epoch-000002"]


def test_a_catalog_that_is_away_ends_no_training(warehouse, solution, tmp_path, monkeypatch, caplog):
    def fail(*_: object, **__: object) -> None:
        raise HeadraceError("the catalog is away")

    monkeypatch.setattr(warehouse.catalog, "run", fail)
    with recorded_training(warehouse, solution, str(tmp_path)) as recorded:
        (tmp_path / "checkpoints" / "epoch-000001").mkdir(parents=True)
        recorded.look()
    assert [one.levelname for one in caplog.records] == ["WARNING"] * 2
