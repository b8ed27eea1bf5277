"""The training loop on the tpu engine: whole runs on an emulated slice, beside the cpu engine and after it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.news_clicks import news_clicks
from tests.trainer.run.test_chaos import kill_after, run_to_the_end
from tests.trainer.synthetic import TYPES, Synthetic, config
from trainer.checkpoints.checkpoint import read_newest
from trainer.errors import ConfigError, NonFiniteLoss
from trainer.model.inputs import lay_out
from trainer.run.loop import train
from trainer.run.weights.run_state import linear_features
from trainer.run.weights.saved_run import read_newest_run
from trainer.serving.trained import evaluate
from trainer.tables import CpuEngine
from trainer.tables.sparse_core import SparseCoreSettings
from warehouse import read_fragment
from warehouse.reading.reader import read_labels

pytest.importorskip("tensorflow")

from tests.support.emulated_slice import EmulatedSlice


@pytest.fixture(scope="module")
def slice_():
    return EmulatedSlice(2)


def run(data, options, slice_=None, **arguments):
    """Train on ``slice_``, or in this process without one."""
    options = replace(options, engine="cpu" if slice_ is None else "tpu")
    return train(data.solution, data.read, options, read_labels=data.read_labels, slice_=slice_, **arguments)


def whole_model(run_dir):
    """All arrays of the newest checkpoint; tables with their initial rows, of which an engine stores what it has changed."""
    saved = read_newest_run(str(run_dir), on_skip=pytest.fail)
    options = config(
        run_dir, **{name: saved.identity.config[name] for name in saved.identity.config if name in OPTIONS}
    )
    layout = lay_out(saved.identity.typed_inputs, options)
    arrays = dict(saved.arrays)
    for kind, features in (("embedding", layout.features), ("linear", linear_features(layout, options, saved.head))):
        for feature in {feature.table.name: feature for feature in features}.values():
            table = feature.table
            if f"{kind}/rows/{table.name}" not in arrays:
                continue
            rows, weights, slots = (arrays.pop(f"{kind}/{part}/{table.name}") for part in ("rows", "weights", "slots"))
            whole = CpuEngine([feature], seed=options.seed).weights_of(table.name, np.arange(table.vocabulary_size))
            starts = [slot.initial for slot in table.optimizer.slots for _ in range(table.dim)]
            whole_slots = np.tile(np.array(starts, np.float32), (len(whole), 1))
            whole[rows], whole_slots[rows] = weights, slots
            arrays[f"{kind}/{table.name}"], arrays[f"{kind}/slots/{table.name}"] = whole, whole_slots
    return arrays


#: The options that the tables depend on.
OPTIONS = ("seed", "dim", "dims", "tables", "batch_rows", "linear_learning_rate", "linear_initial_accumulator",
           "embedding_optimizer", "embedding_learning_rate", "embedding_initial_accumulator", "embedding_initial_stddev")  # fmt: skip


def assert_close(run_dir, other_dir, most=1e-5):
    """Values differ by at most ``most`` times the largest of their array, or 1."""
    one, other = whole_model(run_dir), whole_model(other_dir)
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert (array.shape, array.dtype) == (other[name].shape, other[name].dtype), name
        expected = other[name].astype(np.float64)
        difference = np.abs(array.astype(np.float64) - expected).max(initial=0.0)
        assert difference <= most * max(np.abs(expected).max(initial=0.0), 1.0), name


@pytest.mark.medium
@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize(
    "parts",
    [
        {"linear": True},
        {"linear": True, "deep": False},
        {"network": "dcn"},
        # A layer norm enlarges the differences of small rows.
        pytest.param(
            {"sequences": {"words": {"length": 3, "encoder": "sasrec"}}, "embedding_initial_stddev": 0.1},
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_a_run_trains_the_weights_of_the_cpu_engine(tmp_path, slice_, staleness, parts):
    data = Synthetic(2, 150)
    expected = run(data, config(tmp_path / "cpu", staleness=staleness, **parts))
    found = run(data, config(tmp_path / "tpu", staleness=staleness, **parts), slice_)
    assert_close(tmp_path / "tpu", tmp_path / "cpu")
    assert found.ledger == expected.ledger
    for mine, theirs in zip(found.history, expected.history, strict=True):
        assert mine.partitions == theirs.partitions
        assert mine.scores.log_loss == pytest.approx(theirs.scores.log_loss, abs=1e-5)
        assert mine.scores.auc == pytest.approx(theirs.scores.auc, abs=1e-3)


@pytest.mark.medium
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_a_run_with_replicated_tables_trains_the_weights_of_the_cpu_engine(tmp_path, optimizer):
    """On four devices, ended after an epoch, and gone on from its checkpoint with the tables spread."""
    data = Synthetic(2, 150)
    options = {"linear": True, "embedding_optimizer": optimizer}
    expected = run(data, config(tmp_path / "cpu", **options))
    settings = SparseCoreSettings(replicated={"words": 4, "linear/user": 1})
    first = run(data, config(tmp_path / "tpu", **options), EmulatedSlice(4, settings=settings), stop=lambda: True)
    assert not first.finished
    found = run(data, config(tmp_path / "tpu", **options), EmulatedSlice(2))
    assert found.finished
    assert_close(tmp_path / "tpu", tmp_path / "cpu", 1e-4)
    assert found.ledger == expected.ledger


@pytest.mark.medium
@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
def test_devices_that_share_out_the_dense_update_train_the_weights_of_the_cpu_engine(tmp_path, monkeypatch, optimizer):
    """An epoch on four devices, then on two, then with a whole update on each: checkpoints have whole slots."""
    data, options = Synthetic(3, 150), {"linear": True, "dense_optimizer": optimizer}
    expected = run(data, config(tmp_path / "cpu", **options))
    for least_bytes, replicas in ((0, 4), (0, 2), (1 << 40, 2)):
        monkeypatch.setattr("trainer.model.sharded_step.SHARDED_BYTES", least_bytes)
        found = run(data, config(tmp_path / "tpu", **options), EmulatedSlice(replicas), stop=lambda: True)
    assert found.finished
    assert_close(tmp_path / "tpu", tmp_path / "cpu", 1e-4)
    assert found.ledger == expected.ledger


@pytest.mark.medium
def test_a_slice_counts_the_hidden_units_that_are_off(tmp_path, slice_):
    """A quick rate turns some off; counts are those of the second process."""
    options = config(tmp_path / "cpu", activation="relu", dense_optimizer="sgd", dense_learning_rate=5.0)
    run(Synthetic(2, 150), options)
    shutil.copytree(tmp_path / "cpu", tmp_path / "tpu")
    expected = run(Synthetic(3, 150), options).idle_units
    found = run(Synthetic(3, 150), replace(options, run_dir=str(tmp_path / "tpu")), slice_).idle_units
    assert expected is not None
    assert 0 < expected.off < expected.units
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sparse_cores", "most", "options"),
    [
        (2, 1e-4, {"dense_optimizer": "adagrad", "embedding_optimizer": "adam", "dims": {"user": 6}}),
        (0, 1e-5, {"dense_optimizer": "sgd", "embedding_optimizer": "ftrl", "linear": True}),
        (0, 1e-3, {"embedding_optimizer": "adagrad_momentum", "combiner": "sqrtn", "passes": 2}),
    ],
)
def test_other_optimizers_and_the_engine_of_v2_to_v4(tmp_path, sparse_cores, most, options):
    """Adam and Adagrad with momentum divide a gradient by its own size: one that nearly cancels keeps few digits."""
    data = Synthetic(1, 200)
    run(data, config(tmp_path / "cpu", **options))
    run(data, config(tmp_path / "tpu", **options), EmulatedSlice(4, sparse_cores=sparse_cores))
    assert_close(tmp_path / "tpu", tmp_path / "cpu", most)


@pytest.mark.slow
def test_a_checkpoint_moves_from_the_cpu_engine_to_a_slice_and_back(tmp_path, slice_):
    data, options = Synthetic(3, 150), {"linear": True, "dropout": 0.0}
    run(data, config(tmp_path / "straight", **options))
    for k, on in enumerate((None, slice_, None)):
        report = run(data, config(tmp_path / "moved", **options), on, stop=lambda: True)
        assert (report.epochs, report.finished) == (1, k == 2)
        assert bool(report.resumed_from) == bool(k)
    assert report.ledger.exact
    assert_close(tmp_path / "moved", tmp_path / "straight")


@pytest.mark.slow
def test_a_stopped_run_resumes_with_the_same_bits(tmp_path, slice_):
    data, options = Synthetic(3, 150), {"linear": True, "dropout": 0.2, "staleness": 1}
    straight = run(data, config(tmp_path / "straight", **options), slice_)
    assert not run(data, config(tmp_path / "run", **options), slice_, stop=lambda: True).finished
    resumed = run(data, config(tmp_path / "run", **options), EmulatedSlice(2))
    assert resumed.history == straight.history
    one, other = (read_newest(tmp_path / name, on_skip=pytest.fail).arrays for name in ("run", "straight"))
    assert all(one[name].tobytes() == other[name].tobytes() for name in other)


@pytest.mark.slow
def test_a_killed_run_leaves_no_trace(tmp_path):
    program = ("tests.trainer.synthetic", json.dumps({"engine": "tpu", "passes": 2, "linear": True, "partitions": 3}))
    straight = run_to_the_end(tmp_path / "straight", program)
    for batches, extra_secs in ((2, 0.0), (9, 1.0)):
        assert kill_after(tmp_path / "killed", batches, extra_secs, program), "the run ended before it was killed"
    resumed = run_to_the_end(tmp_path / "killed", program)
    assert resumed["resumed_from"]
    assert resumed["ledger"] == straight["ledger"]
    assert resumed["history"] == straight["history"]
    one, other = (read_newest(tmp_path / name, on_skip=pytest.fail) for name in ("straight", "killed"))
    assert one.digest == other.digest


@pytest.fixture
def news(shared_data: Path, tmp_path: Path):
    with news_clicks(shared_data, tmp_path, hour_rows=700, group_rows=250) as found:
        yield found


@pytest.mark.slow
def test_real_clicks_train_the_same_model_and_metrics(tmp_path, slice_, news):
    warehouse, solution = news
    train_range = replace(solution, partitions=solution.partitions[:2])
    held_out = replace(solution, partitions=solution.partitions[2:])
    read = partial(read_fragment, warehouse.storage, solution)
    scores = {}
    for name, on in (("cpu", None), ("tpu", slice_)):
        options = config(tmp_path / name, linear=True, passes=2, engine="tpu" if on else "cpu")
        labels = partial(read_labels, warehouse.storage, solution)
        report = train(train_range, read, options, read_labels=labels, slice_=on)
        assert report.ledger.exact
        scores[name] = evaluate(str(tmp_path / name), held_out, read)
    assert_close(tmp_path / "tpu", tmp_path / "cpu")
    assert scores["tpu"].events == scores["cpu"].events == 700
    assert scores["tpu"].log_loss == pytest.approx(scores["cpu"].log_loss, abs=1e-5)


@pytest.mark.slow
def test_divergence_is_an_error_and_the_last_checkpoint_stays(tmp_path, slice_):
    data = Synthetic(2, 300)
    good = run(data, config(tmp_path), slice_, stop=lambda: True)
    with pytest.raises(NonFiniteLoss, match="diverged") as caught:
        run(Synthetic(2, 500), config(tmp_path / "other", dense_optimizer="sgd", dense_learning_rate=1e30), slice_)
    assert "epoch 0" in caught.value.where
    assert read_newest(tmp_path / "other", on_skip=pytest.fail) is None
    assert read_newest(tmp_path, on_skip=pytest.fail).path == good.checkpoint


def refused(tmp_path, slice_, **options):
    """The error for options with which nothing is read or written."""
    data = Synthetic(1, 10, types=options.pop("types", None))
    with pytest.raises(ConfigError) as caught:
        train(data.solution, pytest.fail, config(tmp_path / "run", **options), slice_=slice_)
    assert not (tmp_path / "run").exists()
    return caught.value


def test_what_a_slice_cannot_honour_is_refused_before_data_is_read(tmp_path, slice_):
    assert refused(tmp_path, slice_, engine="tpu", batch_rows=100).where == "batch_rows"
    assert refused(tmp_path, None, engine="tpu").where == "engine"
    assert refused(tmp_path, slice_, engine="cpu").where == "engine"
    no_ids = {name: TYPES[name] for name in ("price", "mobile")}
    assert refused(tmp_path, slice_, engine="tpu", types=no_ids).where == "engine"
    moving = refused(tmp_path, slice_, engine="tpu", network="tests.trainer.model.networks:busy")
    assert "trained variables only" in moving.what


def test_an_engine_must_be_a_known_one(tmp_path):
    with pytest.raises(ConfigError, match="engine must be one of cpu, tpu"):
        config(tmp_path, engine="gpu")
    assert "engine" not in config(tmp_path, engine="tpu").to_document()
