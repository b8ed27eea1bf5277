from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer.checkpoints.job_states import publish_as_parts
from tests.trainer.synthetic import Synthetic, config, fragment_table
from trainer import evaluate, load_trained, train
from trainer.checkpoints.checkpoint import checkpoints_dir, read_newest, write_checkpoint
from trainer.errors import BadFeature, RunMismatch
from trainer.model.metrics import auc, log_loss
from transforms.errors import NotFound

pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    data = Synthetic(4, 1500)
    train(data.solution, data.read, config(path, passes=4, dense_learning_rate=0.01))
    return str(path)


@pytest.mark.slow
def test_later_hours_are_predicted(run_dir):
    later, told = Synthetic(2, 2000, first=4), []
    scores = evaluate(run_dir, later.solution, later.read, progress=lambda done, total: told.append((done, total)))
    assert scores.events == later.solution.rows == told[-1][0] == told[-1][1]
    assert scores.auc > 0.7
    assert scores.normalized_entropy < 0.95


@pytest.mark.medium
def test_predictions_are_those_that_evaluate_scores(run_dir):
    trained, later = load_trained(run_dir), Synthetic(1, 300, first=7)
    table = pa.concat_tables(later.tables.values())
    probabilities = trained.predict(table.drop_columns(["__label__"]))
    scores = trained.evaluate(later.solution, later.read)
    labels = table["__label__"].to_numpy()
    assert scores.auc == pytest.approx(auc(labels, probabilities), abs=1e-12)
    assert scores.log_loss == pytest.approx(log_loss(labels, probabilities), rel=1e-9)
    assert len(trained.predict(table.slice(0, 0))) == 0


def test_predicting_changes_nothing(run_dir):
    trained = load_trained(run_dir)
    before = trained.weights.arrays()
    trained.predict(fragment_table(99, 500))
    after = trained.weights.arrays()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def test_a_deterministic_run_can_be_used_where_tensorflow_runs_with_other_threads(run_dir, tmp_path):
    saved = read_newest(Path(run_dir), on_skip=pytest.fail)
    document = json.loads(json.dumps(saved.document))
    document["identity"]["config"] |= {"deterministic": True, "threads": 7}
    write_checkpoint(tmp_path, 16, document, saved.arrays, keep=1)
    trained = load_trained(str(tmp_path))
    assert trained.config.deterministic
    assert len(trained.predict(fragment_table(1, 3))) == 3


def test_the_configuration_round_trips_through_the_checkpoint(run_dir):
    trained = load_trained(run_dir)
    assert trained.config.to_document() == config(run_dir, passes=4, dense_learning_rate=0.01).to_document()
    assert len(trained.progress.history) == 16


def test_a_commit_of_parts_predicts_the_same(run_dir, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run_dir, copy)
    saved = read_newest(copy, on_skip=pytest.fail)
    shutil.rmtree(saved.path)
    publish_as_parts(saved, copy, hosts=3)
    table = fragment_table(99, 500).drop_columns(["__label__"])
    one, other = (load_trained(str(folder)).predict(table) for folder in (run_dir, copy))
    assert one.tobytes() == other.tobytes()


def test_a_torn_checkpoint_falls_back_to_the_one_before(run_dir, tmp_path):

    copy = tmp_path / "copy"
    shutil.copytree(run_dir, copy)
    (checkpoints_dir(copy) / "epoch-000016" / "state.json").write_bytes(b"{")
    skipped = []
    assert load_trained(str(copy), on_skip=skipped.append).checkpoint.endswith("epoch-000015")
    assert len(skipped) == 1


def test_nothing_trained_is_not_found(tmp_path):
    with pytest.raises(NotFound, match="must hold a checkpoint"):
        load_trained(str(tmp_path))


def test_other_inputs_and_bad_rows_are_refused(run_dir):
    trained, later = load_trained(run_dir), Synthetic(1, 20, first=5)
    with pytest.raises(RunMismatch):
        trained.evaluate(replace(later.solution, inputs=later.solution.inputs[1:]), later.read)
    table = fragment_table(1, 3)
    with pytest.raises(BadFeature, match="must have a column"):
        trained.predict(table.drop_columns(["user"]))
    bad = table.set_column(2, "price", pa.array([0.0, np.nan, 0.0], pa.float32()))
    with pytest.raises(BadFeature) as caught:
        trained.predict(bad)
    assert "row 1, input price" in caught.value.where
