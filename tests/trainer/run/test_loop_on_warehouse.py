"""Training on real Parquet files through the warehouse's reader: computed, then memoized, then extended."""

from __future__ import annotations

import pytest

from tests.trainer.synthetic import config
from tests.warehouse.scenes import FREE_READS, events, model, work, write_log, write_partition
from trainer.checkpoints.checkpoint import read_newest
from trainer.run.loop import train
from trainer.serving.trained import evaluate
from warehouse import Warehouse, read_fragment, read_solution, register_table, submit_model
from warehouse.config import WarehouseConfig

pytest.importorskip("tensorflow")


@pytest.fixture
def warehouse(tmp_path):
    root = write_log(tmp_path / "log", hours=3, rows=150)
    with Warehouse.open(WarehouseConfig(home=str(tmp_path / "home"), rates=FREE_READS)) as opened:
        register_table(opened, "log", str(root))
        submit_model(opened, model(inputs=5))
        yield opened


def train_on(warehouse, run_dir, **options):
    solution = read_solution(warehouse, "ctr")
    return train(solution, lambda f: read_fragment(warehouse.storage, solution, f), config(run_dir, **options))


def test_computed_and_memoized_inputs_train_the_same_run(warehouse, tmp_path):
    before = read_solution(warehouse, "ctr")
    assert before.count("load") == 0
    assert before.count("compute") > 0
    straight = train_on(warehouse, tmp_path / "straight")
    read = lambda fragment: read_fragment(warehouse.storage, before, fragment)  # noqa: E731
    train(before, read, config(tmp_path / "run"), stop=lambda: True)
    work(warehouse)
    assert read_solution(warehouse, "ctr").count("load") == before.count("compute")
    resumed = train_on(warehouse, tmp_path / "run")
    assert resumed.epochs == 2
    assert resumed.ledger.exact
    assert resumed.ledger.events == 450
    assert resumed.history == straight.history
    one, other = (read_newest(tmp_path / name, on_skip=pytest.fail) for name in ("straight", "run"))
    assert all(one.arrays[name].tobytes() == other.arrays[name].tobytes() for name in one.arrays)


def test_an_hour_registered_later_continues_the_run_and_so_does_a_late_file(warehouse, tmp_path):
    train_on(warehouse, tmp_path / "run")
    write_partition(tmp_path / "log", 3, events(90, seed=3))
    register_table(warehouse, "log", str(tmp_path / "log"))
    solution = read_solution(warehouse, "ctr")
    scores = evaluate(str(tmp_path / "run"), solution, lambda f: read_fragment(warehouse.storage, solution, f))
    assert scores.events == 540
    report = train_on(warehouse, tmp_path / "run")
    assert (report.epochs, report.events, report.ledger.exact) == (1, 90, True)
    write_partition(tmp_path / "log", 1, events(5, seed=9), name="late.parquet")
    register_table(warehouse, "log", str(tmp_path / "log"))
    report = train_on(warehouse, tmp_path / "run")
    assert (report.epochs, report.events, report.late.rows, report.ledger.exact) == (1, 5, 5, True)
