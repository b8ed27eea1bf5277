from __future__ import annotations

import dataclasses
import json

import pytest

from trainer.errors import ConfigError
from trainer.options.config import TrainConfig, recorded_options
from trainer.options.trial_record import TrialRow
from trainer.run.preparation.preparation import check_placement


@pytest.mark.parametrize(
    "options",
    [
        {"run_dir": ""},
        {"batch_rows": 0},
        {"batch_rows": 2.0},
        {"batch_rows": True},
        {"dim": -1},
        {"dims": {"a": 0}},
        {"combiner": "max"},
        {"combiners": {"a": "max"}},
        {"embedding_optimizer": "rmsprop"},
        {"dense_optimizer": "lion"},
        {"embedding_learning_rate": 0},
        {"embedding_learning_rate": "0.1"},
        {"dense_learning_rate": float("nan")},
        {"embedding_initial_accumulator": 0.0},
        {"embedding_initial_stddev": float("inf")},
        {"top_mlp": (8, 0)},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"partitions_per_epoch": 0},
        {"passes": 256},
        {"seed": -1},
        {"deterministic": 1},
        {"count_events": "yes"},
        {"threads": 0},
        {"keep_checkpoints": 0},
        {"deep": False},
        {"network": "deepfm"},
        {"network": "module:"},
        {"network": "my/file.py:build"},
        {"network": 3},
        {"network_digest": "abc"},
        {"cross_layers": 0},
        {"cross_rank": -1},
        {"cross_structure": "diagonal"},
        {"linear": 1},
        {"linear_learning_rate": 0},
        {"initial_bias": 31},
        {"events_per_epoch": -1},
        {"dense_scaling": {"a": [["cube", 0.0, 1.0]]}},
        {"dense_scaling": {"a": [["log", 0.0, 0.0]]}},
        {"dense_scaling": {"a": 3}},
        {"chosen": {"deep": 3}},
        {"hashed": 3},
        {"hashed": {"a": 3}},
        {"hashed": {"a": {}}},
        {"hashed": {"a": {"capacity": 9, "budget_mib": 1}}},
        {"hashed": {"a": {"capacity": 0}}},
        {"activation": "tanh"},
        {"admit_after": 0},
        {"admit_after": 2.0},
        {"dense_bias": 1},
        {"embedding_dropout": 1.0},
        {"embedding_weight_decay": -0.1},
        {"embedding_weight_decay": float("nan")},
        {"trial": {}},
        {"trial": [{"name": 3}]},
        {"trial": [{"loss": 0.1, "kind": "x"}]},
        {"hashed": {"a": {"capacity": True}}},
        {"hashed": {"a": {"budget_mib": 0.5}}},
        {"hashed": {"a": {"capacity": 9, "admit_after": 0}}},
        {"hashed": {"a": {"capacity": 9, "admit_after": 256}}},
        {"hashed": {"a": {"capacity": 9, "expire_after": 5}}},
        {"hashed": {"a": {"capacity": 9, "expire_after_steps": -1}}},
        {"hashed": {"a": {"capacity": 9, "candidates": 8}}},
        {"hashed": {"a": {"capacity": 9, "candidate_steps": 0}}},
    ],
)
def test_options_out_of_range_are_refused_by_name(options):
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**{"run_dir": "run", **options})
    (name,) = options
    assert caught.value.where.startswith(name)
    assert caught.value.allowed


def test_document_round_trips_through_json():
    config = TrainConfig("run", dims={"b": 4, "a": 8}, combiners={"a": "sum"}, tables={"a": "t"}, top_mlp=[8, 4],
                         dense_scaling={"x": [["log", 1.5, 2]]}, chosen={"dim": "so"})  # fmt: skip
    document = json.loads(json.dumps(config.to_document()))
    again = TrainConfig.from_document(document, run_dir="elsewhere")
    assert dataclasses.replace(again, run_dir="run") == config


def test_hashed_options_round_trip_and_are_absent_without_a_hashed_table():
    given = {"b": {"budget_mib": 3}, "a": {"capacity": 7, "admit_after": 2, "expire_after_steps": 9}}
    config = TrainConfig("run", hashed=given)
    document = json.loads(json.dumps(config.to_document()))
    assert document["hashed"] == given
    assert TrainConfig.from_document(document, run_dir="run") == config
    assert "hashed" not in TrainConfig("run").to_document()


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"embedding_optimizer": "row_wise_adagrad"}, "embedding_optimizer must be one of adagrad, sgd"),
        ({"admit_after": 2}, "admit_after must be 1 in a slice"),
        ({"embedding_weight_decay": 0.1}, "embedding_weight_decay must be 0 in a slice"),
        ({"staleness": 2}, "staleness must be 0 or 1 in a slice"),
    ],
)
def test_options_of_tables_that_a_slice_does_not_have_are_refused_there_alone(options, rule):
    config = TrainConfig("run", engine="tpu", **options)
    with pytest.raises(ConfigError, match=rule) as caught:
        check_placement(config, is_served=False)
    assert "give --servers too" in caught.value.next_step
    check_placement(config, is_served=True)
    check_placement(dataclasses.replace(config, engine="cpu"), is_served=False)


def test_what_may_change_between_runs_is_not_in_the_document():
    assert not {"run_dir", "keep_checkpoints", "prefetch_fragments", "statistics_share"} & set(
        TrainConfig("run").to_document()
    )
    assert TrainConfig("a", keep_checkpoints=9).to_document() == TrainConfig("b").to_document()


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="a training option must be a known one") as caught:
        TrainConfig.from_document({"batch_row": 3}, run_dir="run")
    assert caught.value.allowed.startswith("batch_rows")


def test_options_are_frozen():
    config = TrainConfig("run", dims={"a": 1})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.dim = 3
    with pytest.raises(TypeError):
        config.dims["a"] = 3


def test_the_trial_of_a_run_is_in_its_document():
    row = TrialRow("linear", 2, 3, 900, 0.9, 0.01, 0.0, 0.0, True, True)
    config = TrainConfig("run", trial=[row])
    document = json.loads(json.dumps(config.to_document()))
    assert document["trial"][0]["loss"] == 0.9
    assert TrainConfig.from_document(document, run_dir="run") == config
    assert "trial" not in TrainConfig("run").to_document()


def test_hosts_share_the_rows_of_a_batch_or_have_as_many_each():
    shared, own = (TrainConfig("run", batch_rows=100, batch_rows_per_host=one) for one in (False, True))
    assert [(shared.rows_of_step(hosts), shared.rows_of_host(hosts)) for hosts in (1, 2, 3)] == [
        (100, 100),
        (100, 50),
        (100, 34),
    ]
    assert [(own.rows_of_step(hosts), own.rows_of_host(hosts)) for hosts in (1, 2, 3)] == [
        (100, 100),
        (200, 100),
        (300, 100),
    ]
    for one in (shared, own):
        assert TrainConfig.from_document(recorded_options(one.to_document()), run_dir="run") == one
