"""One memo for several equal contents."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import func, select

import transforms.expressions.expression as hr
from tests.warehouse.scenes import compute, events, model, work, write_partition
from transforms.expressions.model import Model
from warehouse import (
    Warehouse,
    commit_memos,
    damage_recorder,
    lease_tasks,
    queue_missing,
    read_fragment,
    read_solution,
    register_table,
    submit_model,
    verify_warehouse,
)
from warehouse.catalog import schema
from warehouse.matching import submit as submitting

ONES = pa.array([1.0] * 20, pa.float32())


def by_price() -> Model:
    made = Model("by_price", client="ads", label="clicked", table="log")
    made.input("price", hr.float32("price").fill_null(0.0).log1p())
    return made


def waiting(warehouse: Warehouse) -> int:
    with warehouse.catalog.read() as connection:
        return connection.execute(select(func.count()).select_from(schema.awaited_contents)).scalar_one()


def loads(warehouse: Warehouse, name: str) -> tuple[int, int]:
    solution = read_solution(warehouse, name)
    return solution.count("load"), solution.count("compute")


@pytest.fixture
def wider(warehouse: Warehouse, log: Path, tmp_path: Path) -> Warehouse:
    """A second table of the same events, with a column more."""
    for hour in range(3):
        write_partition(tmp_path / "wider", hour, events(seed=hour, more=pa.array(range(20))))
    register_table(warehouse, "wider", str(tmp_path / "wider"))
    return warehouse


@pytest.mark.parametrize("block_pairs", [200_000, 1])
def test_hours_that_are_alike_in_what_is_read(
    warehouse: Warehouse, log: Path, block_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "_BLOCK_PAIRS", block_pairs)
    for hour in range(3):
        write_partition(log, hour, events(seed=hour, price=ONES))
    register_table(warehouse, "log", str(log))
    submit_model(warehouse, by_price())
    assert (work(warehouse), waiting(warehouse)) == (1, 0)
    assert loads(warehouse, "by_price") == (3, 0)
    assert verify_warehouse(warehouse).findings == ()


def test_tables_that_are_alike_in_what_is_read(wider: Warehouse) -> None:
    submit_model(wider, model("narrow"))
    submit_model(wider, model("wide"), table="wider")
    assert (work(wider), waiting(wider)) == (6, 0)
    assert loads(wider, "narrow") == loads(wider, "wide") == (6, 0)
    assert verify_warehouse(wider).findings == ()


def test_data_that_changes_elsewhere_while_a_worker_computes(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    leased = lease_tasks(warehouse, "worker", limit=100)
    done = [(task, compute(warehouse, task)) for task in leased]
    for hour in range(3):
        write_partition(log, hour, events(seed=hour, price=ONES))
    register_table(warehouse, "log", str(log))
    assert queue_missing(warehouse) == 0, "nothing that it memoizes changed"
    assert all(commit_memos(warehouse, done))
    assert loads(warehouse, "ctr") == (6, 0)


def test_what_waits_for_the_data_of_another_table_is_computed_from_its_own(wider: Warehouse, log: Path) -> None:
    """Nobody changed the table of the model that waits: its tasks were over a copy that is gone."""
    submit_model(wider, model("narrow"))
    submit_model(wider, model("wide"), table="wider")
    for hour in range(3):
        write_partition(log, hour, events(seed=50 + hour))
    register_table(wider, "log", str(log))
    assert queue_missing(wider) == 6, "for the table that changed"
    assert {"/log/" in task.fragment.path for task in lease_tasks(wider, "worker", limit=1)} == {True}
    assert queue_missing(wider) == 0
    assert work(wider) == 11
    assert (loads(wider, "narrow")[0] + 1, loads(wider, "wide")) == (6, (6, 0))


def test_damage_is_repaired_for_every_content(wider: Warehouse, tmp_path: Path) -> None:
    submit_model(wider, model("narrow"))
    work(wider)
    assert submit_model(wider, model("wide"), table="wider").hits == 6
    solution = read_solution(wider, "narrow")
    for path in (tmp_path / "home/memos").rglob("*.memo"):
        path.unlink()
    for fragment in solution.fragments:
        read_fragment(wider.storage, solution, fragment, on_damage=damage_recorder(wider))
    assert (work(wider), waiting(wider)) == (6, 0)
    assert loads(wider, "narrow") == loads(wider, "wide") == (6, 0)
