"""Runs with sequences: the same bits after any stop and wherever tables are; bags stay what they were."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer.run.test_scheduled_rates import assert_equal_arrays
from tests.trainer.synthetic import Synthetic, config, fragment_table, on_servers
from trainer.checkpoints.checkpoint import read_newest
from trainer.errors import ConfigError, RunMismatch
from trainer.options.config import TrainConfig
from trainer.run.choosing.choose import choose_config
from trainer.run.loop import train
from trainer.serving.trained import load_trained
from transforms.columns.arrow_types import arrow_type
from transforms.types import Dense, DType, Ragged

pytest.importorskip("tensorflow")

TYPES = {
    "words": Ragged(DType.INT64, 500),
    "user": Dense(DType.INT64, 500),
    "ages": Ragged(DType.INT64, 8),
    "price": Dense(DType.FLOAT32),
}
DIN = {"words": {"length": 3, "encoder": "din", "target": "user", "gaps": "ages", "hidden": [5]}}
SASREC = {"words": {"length": 3, "encoder": "sasrec", "target": "user", "gaps": "ages", "dropout": 0.1}}


def with_ages(seed, rows, types):
    """The usual events, and for each word an age."""
    table = fragment_table(seed, rows)
    offsets = table["words"].combine_chunks().offsets
    ages = pa.array(np.arange(offsets[-1].as_py()) % 8)
    lists = pa.ListArray.from_arrays(offsets, ages, type=arrow_type(TYPES["ages"]))
    return table.append_column("ages", lists).select([*types, "__label__"])


def run(folder, stop=lambda: False, servers=0, data=None, **options):
    data = data or Synthetic(3, types=TYPES, make=with_ages)
    with on_servers(servers, str(folder)) as make_engine:
        report = train(data.solution, data.read, config(folder, **options), stop=stop, make_engine=make_engine)
    newest = read_newest(folder, on_skip=pytest.fail)
    assert newest is not None
    return report, newest.arrays


@pytest.mark.medium
@pytest.mark.parametrize(
    ("sequences", "options"),
    [
        (DIN, {"linear": True, "staleness": 2}),
        pytest.param(SASREC, {"network": "dcn", "embedding_dropout": 0.1}, marks=pytest.mark.slow),
        pytest.param(DIN, {"hashed": {"user": {"capacity": 400}}, "network": "fm"}, marks=pytest.mark.slow),
        pytest.param(DIN, {"pruning": {"budget": 0.5, "round_steps": 3}}, marks=pytest.mark.slow),
    ],
    ids=["din", "sasrec", "hashed", "pruned"],
)
def test_a_run_has_the_same_bits_on_servers_and_after_any_end(tmp_path, sequences, options):
    options = {"partitions_per_epoch": 1, "sequences": sequences, **options}
    report, whole = run(tmp_path / "whole", **options)
    assert report.finished
    _, served = run(tmp_path / "served", servers=1, **options)
    assert_equal_arrays(whole, served)
    for number in range(3):
        run(tmp_path / "cut", lambda: True, servers=number % 2 if "pruning" not in options else 0, **options)
    _, cut = run(tmp_path / "cut", **options)
    assert_equal_arrays(whole, cut)


@pytest.mark.medium
def test_the_order_of_ids_is_trained(tmp_path):
    """The label is whether the last word is even: a bag of all words cannot know it."""

    def make(seed, rows, types):
        table = fragment_table(seed, rows)
        draw = np.random.default_rng(seed)
        words = draw.integers(0, 20, (rows, 4))
        lists = pa.array(words.tolist(), arrow_type(TYPES["words"]))
        columns = {"words": lists, "__label__": pa.array((words[:, -1] % 2).astype(np.int64))}
        return pa.table({name: columns[name] if name in columns else table[name] for name in [*types, "__label__"]})

    data = Synthetic(4, 600, types={"words": TYPES["words"], "price": TYPES["price"]}, make=make)
    options = {"dim": 8, "batch_rows": 64, "embedding_learning_rate": 0.05, "dense_learning_rate": 0.01}
    sequence = {"words": {"length": 4, "encoder": "sasrec", "layers": 1}}
    of_order, _ = run(tmp_path / "order", data=data, **options, sequences=sequence)
    of_bags, _ = run(tmp_path / "bags", data=data, **options)
    losses = [one.history[-1].scores.log_loss for one in (of_order, of_bags)]
    assert losses[0] < 0.4
    assert losses[1] > 0.55


def test_a_trained_run_predicts_and_keeps_its_sequences(tmp_path):
    data = Synthetic(1, types=TYPES, make=with_ages)
    report, _ = run(tmp_path, data=data, sequences=DIN)
    assert report.finished
    trained = load_trained(str(tmp_path))
    assert trained.config.sequences == TrainConfig("run", sequences=DIN).sequences
    table = next(iter(data.tables.values()))
    predicted = trained.predict(table)
    assert predicted.shape == (table.num_rows,)
    assert np.ptp(predicted) > 0
    with pytest.raises((ConfigError, RunMismatch), match="sequences"):
        run(tmp_path, data=Synthetic(2, types=TYPES, make=with_ages), sequences=SASREC)


@pytest.mark.slow
def test_a_trial_chooses_among_models_with_the_given_sequences(tmp_path):
    """A linear candidate has bags of the same ids; the chosen options train."""
    data = Synthetic(4, 300, types=TYPES, make=with_ages)
    given = {"sequences": DIN, "deterministic": False, "deep": True, "dim": 4}
    chosen = choose_config(data.solution, data.read, given, run_dir=str(tmp_path))
    assert chosen.sequences == TrainConfig("run", sequences=DIN).sequences
    assert "sequences" not in chosen.chosen
    assert len(chosen.trial) > 1
    assert train(data.solution, data.read, chosen).finished
