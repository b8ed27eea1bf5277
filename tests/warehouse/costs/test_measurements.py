"""Costs that are measured with memos and summed in the catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from tests.warehouse.scenes import Clock, compute, model
from transforms.execution.operator_costs import OperatorWork
from warehouse import Warehouse, lease_tasks, submit_model
from warehouse.catalog import schema
from warehouse.costs.measurements import HALF_LIFE_ROWS, MemoMeasurement, decay_factor, record_measurements
from warehouse.queue.commit import commit_memos


def costs(warehouse: Warehouse) -> dict[str, tuple[float, ...]]:
    with warehouse.catalog.read() as connection:
        rows = connection.execute(select(schema.operator_costs)).all()
        return {row.operator: (row.rows, row.secs, row.stored_rows, row.stored_bytes) for row in rows}


def record(warehouse: Warehouse, *added: OperatorWork | MemoMeasurement) -> None:
    with warehouse.catalog.write() as connection:
        record_measurements(
            connection,
            [one for one in added if isinstance(one, OperatorWork)],
            [one for one in added if isinstance(one, MemoMeasurement)],
        )


def test_old_rows_fade() -> None:
    assert decay_factor(0) == 1
    assert decay_factor(HALF_LIFE_ROWS) == 0.5
    assert decay_factor(2 * HALF_LIFE_ROWS) == 0.25
    assert decay_factor(3.0) * decay_factor(5.0) == pytest.approx(decay_factor(8.0))


def test_sums_add_up_and_forget(warehouse: Warehouse) -> None:
    half = int(HALF_LIFE_ROWS)
    record(warehouse, OperatorWork("unigrams", 1, half, 4.0), OperatorWork("unigrams", 1, half, 2.0))
    assert costs(warehouse) == {"unigrams": (2 * half, 6.0, 0, 0)}
    record(warehouse, OperatorWork("unigrams", 1, half, 1.0), OperatorWork("add", 2, 0, 0.0))
    assert costs(warehouse) == {"unigrams": (2 * half, 4.0, 0, 0)}


def test_a_measured_cost_follows_a_faster_release(warehouse: Warehouse) -> None:
    record(warehouse, OperatorWork("add", 1, 50_000_000, 5.0))
    for _ in range(10):
        record(warehouse, OperatorWork("add", 1, 5_000_000, 0.05))
    rows, secs, *_ = costs(warehouse)["add"]
    assert secs / rows == pytest.approx(1e-8, rel=0.1)


def test_bytes_fade_apart_from_seconds(warehouse: Warehouse) -> None:
    record(warehouse, OperatorWork("length", 1, 100, 1.0))
    memo = MemoMeasurement("f" * 64, "length", 1, int(HALF_LIFE_ROWS), 3.0, 700)
    record(warehouse, memo)
    record(warehouse, memo)
    assert costs(warehouse) == {"length": (100, 1.0, 1.5 * HALF_LIFE_ROWS, 1050)}
    with warehouse.catalog.read() as connection:
        (row,) = connection.execute(select(schema.component_costs)).all()
    assert tuple(row) == ("f" * 64, 1.5 * HALF_LIFE_ROWS, 4.5, 1050)


def test_a_commit_records_what_it_made_once(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=1))
    done = [(task, compute(warehouse, task)) for task in lease_tasks(warehouse, "worker", limit=2)]
    work = OperatorWork("unigrams", 1, 40, 0.25)
    assert commit_memos(warehouse, done, [work]) == (True, True)
    before = costs(warehouse)
    assert before["unigrams"] == (40, 0.25, 0, 0)
    assert before["hash_buckets"][2:] == (40, sum(written.size_bytes for _, written in done))
    commit_memos(warehouse, done, [work])  # asked for twice, as after an answer that was lost
    assert costs(warehouse) == before


def test_a_lost_lease_records_nothing(warehouse: Warehouse, log: Path, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    (task,) = lease_tasks(warehouse, "slow", limit=1)
    written = compute(warehouse, task)
    clock.advance(warehouse.config.lease_secs + 1)
    lease_tasks(warehouse, "other", limit=10)
    assert commit_memos(warehouse, [(task, written)], [OperatorWork("unigrams", 1, 20, 0.25)]) == (False,)
    assert costs(warehouse) == {}
