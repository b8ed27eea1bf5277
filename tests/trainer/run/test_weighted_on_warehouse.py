"""Training on weighted ids and vectors from real Parquet files."""

from __future__ import annotations

import numpy as np
import pytest

import transforms.expressions.expression as hr
from tests.trainer.synthetic import config
from tests.warehouse.reading.test_weighted_columns import events, model, write_partition
from tests.warehouse.scenes import FREE_READS, work
from trainer.checkpoints.checkpoint import read_newest
from trainer.errors import BadFeature, UntrainableInput
from trainer.run.loop import train
from trainer.serving.trained import load_trained
from warehouse import Warehouse, read_fragment, read_solution, register_table, submit_model
from warehouse.config import WarehouseConfig

pytest.importorskip("tensorflow")


def trainable():
    made = model()
    del made.inputs["raw"]  # ids without buckets
    return made


@pytest.fixture
def warehouse(tmp_path):
    for hour in range(2):
        write_partition(tmp_path / "log", hour, events(seed=hour, rows=60))
    with Warehouse.open(WarehouseConfig(home=str(tmp_path / "home"), rates=FREE_READS)) as opened:
        register_table(opened, "log", str(tmp_path / "log"))
        yield opened


def train_on(warehouse, run_dir):
    solution = read_solution(warehouse, "ctr")
    return train(solution, lambda f: read_fragment(warehouse.storage, solution, f), config(run_dir))


@pytest.mark.slow
def test_computed_and_memoized_weights_train_the_same_run(warehouse, tmp_path):
    submit_model(warehouse, trainable())
    first = train_on(warehouse, tmp_path / "computed")
    work(warehouse)
    second = train_on(warehouse, tmp_path / "memoized")
    assert first.history == second.history
    assert (second.events, second.ledger.exact) == (120, True)
    one, other = (read_newest(tmp_path / name, on_skip=pytest.fail) for name in ("computed", "memoized"))
    assert all(one.arrays[name].tobytes() == other.arrays[name].tobytes() for name in one.arrays)
    solution = read_solution(warehouse, "ctr")
    table = read_fragment(warehouse.storage, solution, solution.partitions[0].fragments[0])
    probabilities = load_trained(str(tmp_path / "memoized")).predict(table)
    assert probabilities.shape == (60,)
    assert np.isfinite(probabilities).all()


def test_ids_without_buckets_are_refused_with_what_to_add(warehouse, tmp_path):
    submit_model(warehouse, model())
    with pytest.raises(UntrainableInput) as caught:
        train_on(warehouse, tmp_path / "run")
    assert (caught.value.where, caught.value.next_step) == ("input raw", "add .hash_buckets(n) to the expression")


def test_a_weight_that_is_not_finite_stops_training_and_names_its_row(warehouse, tmp_path):
    made = trainable()
    shops = hr.ragged("shops", "int64").hash_buckets(9)
    made.input("odd", shops.weighted_by((shops.positions() - 1).log()))
    submit_model(warehouse, made)
    with pytest.raises(BadFeature, match="weight of an id must be finite") as caught:
        train_on(warehouse, tmp_path / "run")
    assert caught.value.where.endswith("row 0, input odd")
