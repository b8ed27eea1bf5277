"""Runs whose tables keep their most important rows: equal to runs that were never stopped, and predicted as they were trained."""

from __future__ import annotations

from itertools import count, cycle, product

import numpy as np
import pytest

from tests.support.parameter_servers import thread_servers
from tests.trainer.run.test_loop import equal_arrays, saved
from tests.trainer.run.test_served_loop import on_servers
from tests.trainer.synthetic import Synthetic, config
from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.config import TrainConfig
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.run.loop import train
from trainer.serving.trained import load_trained
from trainer.tables import IdBatch
from trainer.tables.routes.pruned_engine import PrunedEngine

tf = pytest.importorskip("tensorflow")

PRUNING = {"budget": 0.3, "round_steps": 3, "decay_steps": 2}


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["zero", "restored"])
def test_a_stopped_run_goes_on_as_one_that_was_not_stopped(tmp_path, reset):
    data, options = Synthetic(4, 200), {"pruning": {**PRUNING, "reset": reset}, "linear": True, "batch_rows": 50}
    straight = train(data.solution, data.read, config(tmp_path / "straight", **options))
    while not train(data.solution, data.read, config(tmp_path / "run", **options), stop=lambda: True).finished:
        continue
    assert straight.ledger.exact
    one, other = saved(tmp_path / "run"), saved(tmp_path / "straight")
    assert equal_arrays(one, other)
    names = [name.removeprefix("embedding/weights/") for name in one.arrays if name.startswith("embedding/weights/")]
    assert len(names) > 1
    for kind, name in product(("embedding", "linear"), names):
        assert one.arrays[f"history/{kind}/pruning/{name}"][2] >= 5, "rounds were made"
        assert len(one.arrays[f"{kind}-importance/rows/{name}"]) > len(one.arrays[f"{kind}/rows/{name}"])
        assert (f"{kind}-left/rows/{name}" in one.arrays) == (reset == "restored")


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 2])
def test_a_run_moves_to_servers_and_back(tmp_path, servers):
    """Deep and linear part have one engine there, and one each here. Two servers have a cut-off each, so they keep other rows, as many."""
    data, options = Synthetic(6, 200), {"pruning": PRUNING, "linear": True, "batch_rows": 50}
    straight = train(data.solution, data.read, config(tmp_path / "alone", **options))
    run, numbers = config(tmp_path / "run", **options), count(1)
    with thread_servers(servers) as started:
        for make_engine in cycle([None, lambda *given: on_servers(started, next(numbers))(*given)]):
            report = train(data.solution, data.read, run, stop=lambda: True, make_engine=make_engine)
            if report.finished:
                break
    one, other = saved(tmp_path / "run"), saved(tmp_path / "alone")
    if servers == 1:
        assert equal_arrays(one, other)
    rows = [[len(found.arrays[f"embedding/rows/{name}"]) for name in ("words", "user")] for found in (one, other)]
    assert sum(rows[0]) == sum(rows[1])
    assert report.ledger.exact
    assert report.history[-1].scores.log_loss == pytest.approx(straight.history[-1].scores.log_loss, rel=0.02)


@pytest.mark.medium
def test_a_run_with_hashed_tables_moves_to_a_server_and_back(tmp_path):
    """Both kinds are in one store there, and in one for each part of the model here."""
    data = Synthetic(4, 200)
    options = {"pruning": PRUNING, "hashed": {"user": {"capacity": 40}}, "linear": True, "batch_rows": 50}
    train(data.solution, data.read, config(tmp_path / "alone", **options))
    run, numbers = config(tmp_path / "run", **options), count(1)
    with thread_servers(1) as servers:
        for make_engine in cycle([None, lambda *given: on_servers(servers, next(numbers))(*given)]):
            if train(data.solution, data.read, run, stop=lambda: True, make_engine=make_engine).finished:
                break
    one, other = saved(tmp_path / "run"), saved(tmp_path / "alone")
    assert equal_arrays(one, other)
    sections = {tuple(name.split("/")[1:]) for name in one.arrays if name.startswith("history/")}
    assert {("embedding", "ages", "user"), ("linear", "ages", "user"), ("embedding", "pruning", "words")} <= sections
    assert not {("embedding", "pruning", "user"), ("embedding", "ages", "words")} & sections
    trained = load_trained(str(tmp_path / "alone"))
    engine = trained.weights.engine
    assert engine is not None
    kept = {name: state.rows.tolist() for name, state in engine.state().items()}
    assert len(kept["user"]) == 40
    first = trained.evaluate(data.solution, data.read)
    assert trained.evaluate(data.solution, data.read) == first
    assert {name: state.rows.tolist() for name, state in engine.state().items()} == kept
    words = next(one for one in engine.features if one.table.name == "words")
    unseen = np.setdiff1d(np.arange(words.table.vocabulary_size), kept["words"])[:1]
    found = {}
    for feature in engine.features:
        ids = unseen if feature.name == words.name else np.zeros(0, np.int64)
        found[feature.name] = ids
    offsets = np.cumsum([0, *map(len, found.values())])
    batch = IdBatch(np.concatenate([*found.values()]), np.stack([offsets[:-1], offsets[1:]], axis=1))
    assert not engine.lookup(batch).any(), "a pruned row is read as zeros"


def test_with_a_budget_for_all_rows_the_weights_are_those_of_whole_tables(tmp_path):
    data = Synthetic(2, 200)
    train(data.solution, data.read, config(tmp_path / "whole"))
    train(data.solution, data.read, config(tmp_path / "pruned", pruning={"budget": 1.0}))
    whole, pruned = saved(tmp_path / "whole").arrays, saved(tmp_path / "pruned").arrays
    assert whole.keys() < pruned.keys()
    assert all(pruned[name].tobytes() == whole[name].tobytes() for name in whole)


def test_predictions_read_pruned_rows_as_zeros_and_change_nothing(tmp_path):
    data = Synthetic(3, 300)
    train(data.solution, data.read, config(tmp_path, pruning=PRUNING))
    trained = load_trained(str(tmp_path))
    engine = trained.weights.engine
    assert isinstance(engine, PrunedEngine)
    before = {name: one.rows.tolist() for name, one in engine.state().items()}
    kept, size = sum(map(len, before.values())), sum(one.vocabulary_size for one in engine.tables)
    assert 0 < kept <= 0.3 * size
    first = trained.evaluate(data.solution, data.read)
    assert trained.evaluate(data.solution, data.read) == first
    assert {name: one.rows.tolist() for name, one in engine.state().items()} == before
    for table in engine.tables:
        pruned = np.setdiff1d(np.arange(table.vocabulary_size), before[table.name])
        assert not engine.weights_of(table.name, pruned).any()


def test_a_checkpoint_without_importance_is_torn(tmp_path):
    data = Synthetic(1, 50)
    train(data.solution, data.read, config(tmp_path, pruning=PRUNING))
    checkpoint = saved(tmp_path)
    trained = load_trained(str(tmp_path))
    arrays = {name: array for name, array in checkpoint.arrays.items() if "-importance/" not in name}
    with pytest.raises(TornCheckpoint, match="importance"):
        trained.weights.load(arrays)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"pruning": {"budget": 0}}, r"pruning.budget must be a number in \(0, 1\]"),
        ({"pruning": {"budjet": 0.5}}, "known one"),
        ({"pruning": []}, "an object"),
    ],
)
def test_bad_options_are_refused(options, problem):
    with pytest.raises(ConfigError, match=problem):
        TrainConfig("run", **options)


def test_options_go_through_the_document_of_a_run():
    made = TrainConfig("run", pruning={"budget": 0.3, "groups": [{"tables": ["a"], "rows": 7}, {"tables": ["b"]}]})
    again = TrainConfig.from_document(made.to_document(), run_dir="run")
    assert again == made
    assert isinstance(again.pruning, PruningOptions)
    assert "pruning" not in TrainConfig("run").to_document()


def test_pruned_tables_are_spread_by_rows(tmp_path):
    from trainer.run.preparation.preparation import check_placement

    options = TrainConfig(str(tmp_path), pruning={})
    check_placement(options, is_served=True)
    check_placement(options, is_served=False, hosts=3)
    by_rows = cyclic_plan([("t", 10, 4)], 2)
    slices = Slice(0, 2, (0,)), Slice(2, 2, (1,))
    cut = PartitionPlan(2, (TablePlan("t", 10, 4, slices),))
    copied = PartitionPlan(2, (TablePlan("t", 10, 4, (Slice(0, 4, (0, 1)),), is_replicated=True),))
    for is_served in (False, True):
        check_placement(options, is_served=is_served, hosts=2, plan=by_rows)
        for plan in (cut, copied):
            with pytest.raises(ConfigError, match="must be placed by rows, blocks of rows or as wholes"):
                check_placement(options, is_served=is_served, hosts=2, plan=plan)
    check_placement(options, is_served=False, hosts=2, plan=by_rows, has_towers=True)
    check_placement(options, is_served=True, hosts=2)
