from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.trainer.synthetic import TYPES, Synthetic, config
from trainer.checkpoints.checkpoint import checkpoints_dir, read_newest
from trainer.errors import BadLabel, CheckpointNotWritten, ConfigError, NonFiniteLoss, RunMismatch, UntrainableInput
from trainer.run.loop import train
from trainer.run.progress.lock import run_lock
from transforms.errors import Busy
from transforms.types import Dense, DType

tf = pytest.importorskip("tensorflow")


def saved(run_dir):
    return read_newest(run_dir, on_skip=pytest.fail)


def equal_arrays(one, other):
    assert one.arrays.keys() == other.arrays.keys()
    return all(one.arrays[name].tobytes() == other.arrays[name].tobytes() for name in one.arrays)


def test_a_run_trains_every_event_and_reports_it(tmp_path):
    data, events = Synthetic(3, 200), []
    options = config(tmp_path, passes=2)
    report = train(data.solution, data.read, options, progress=events.append, read_labels=data.read_labels)
    assert (report.epochs, report.events, report.finished, report.resumed_from) == (6, 2 * data.solution.rows, True, "")
    assert report.ledger.exact
    assert (report.ledger.events, report.ledger.least, report.ledger.most) == (data.solution.rows, 2, 2)
    first, second, newest = ((part.key,) for part in data.solution.partitions)
    assert [item.partitions for item in report.history] == [first, second, first, second, newest, newest]
    assert [item.pass_number for item in report.history] == [0, 0, 1, 1, 0, 1]
    assert [item.is_unseen for item in report.history] == [True, True, False, False, True, False]
    assert report.final == report.history[4].scores
    assert [(one.passes, one.scores.events) for one in report.held_out.scored] == [(1, 417), (2, 417)]
    kinds = [event.kind for event in events]
    older, scored = 2 * [*4 * ["batch"], "epoch"], ["held out"]
    expected = ["started", *older, *scored, *older, *scored, *2 * [*4 * ["batch"], "epoch"]]
    assert [kind for kind in kinds if kind != "checkpoint"] == expected
    assert kinds.count("checkpoint") == 6
    assert all(kinds[:at].count("checkpoint") < kinds[:at].count("epoch") + 1 for at in range(len(kinds)))
    assert (events[-1].events, events[-1].total_events, events[-1].epochs) == (report.events, report.events, 6)
    one, two, held_out = ([f.path for f in part.fragments] for part in data.solution.partitions)
    scoring = held_out
    assert data.reads == [*one, *two, *scoring, *one, *two, *scoring, *held_out, *held_out]
    checkpoint = saved(tmp_path)
    assert checkpoint.path == report.checkpoint
    assert checkpoint.document["position"]["epochs_done"] == 6
    assert checkpoint.document["step"] == 24
    assert report.to_document()["ledger"]["exact"]


@pytest.mark.slow
def test_it_learns(tmp_path):
    data = Synthetic(4, 2000)
    report = train(data.solution, data.read, config(tmp_path, passes=4, batch_rows=256, dense_learning_rate=0.01))
    first, last = report.history[0].scores, report.history[-1].scores
    assert last.auc > 0.75 > first.auc
    assert last.normalized_entropy < 0.9


def test_partitions_are_grouped_into_epochs(tmp_path):
    data = Synthetic(3, 50)
    report = train(data.solution, data.read, config(tmp_path, partitions_per_epoch=2))
    assert [item.partitions for item in report.history] == [("hour=00", "hour=01"), ("hour=02",)]


@pytest.mark.slow
def test_a_stopped_run_resumes_at_its_position(tmp_path):
    data = Synthetic(4, 200)
    straight = train(data.solution, data.read, config(tmp_path / "straight", dropout=0.2))
    stopped = train(data.solution, data.read, config(tmp_path / "run", dropout=0.2), stop=lambda: True)
    assert (stopped.epochs, stopped.finished, stopped.ledger.exact) == (1, False, False)
    report = train(data.solution, data.read, config(tmp_path / "run", dropout=0.2))
    assert (report.epochs, report.finished, report.resumed_from) == (3, True, stopped.checkpoint)
    assert report.ledger.exact
    assert report.history == straight.history
    assert equal_arrays(saved(tmp_path / "run"), saved(tmp_path / "straight"))


@pytest.mark.slow
def test_epochs_that_end_early_give_the_bits_of_a_straight_run(tmp_path):
    """Within an epoch, with its last batch, and at its end: a checkpoint has the predictions so far, and no event is trained twice."""
    data, options = Synthetic(3, 200), {"passes": 2, "dropout": 0.2}
    straight = train(data.solution, data.read, config(tmp_path / "straight", **options))
    reports = []
    while not reports or not reports[-1].finished:
        asked = iter([False, False, True])
        reports.append(
            train(data.solution, data.read, config(tmp_path / "run", **options), ends_early=lambda a=asked: next(a))
        )
    assert len(reports) > 6
    assert sum(one.events for one in reports) == straight.events
    assert reports[-1].ledger.exact
    assert reports[-1].history == straight.history
    assert equal_arrays(saved(tmp_path / "run"), saved(tmp_path / "straight"))


def test_a_run_without_counts_ends_early_at_the_end_of_its_epoch(tmp_path):
    data = Synthetic(3, 200)
    report = train(data.solution, data.read, config(tmp_path, count_events=False), ends_early=lambda: True)
    assert (report.epochs, report.events, report.finished) == (1, 417, False)


def test_a_finished_run_has_nothing_to_do(tmp_path):
    data = Synthetic(2, 50)
    first = train(data.solution, data.read, config(tmp_path))
    again = train(data.solution, data.read, config(tmp_path, keep_checkpoints=5))
    assert (again.epochs, again.events, again.finished) == (0, 0, True)
    assert again.history == first.history
    assert again.ledger == first.ledger


@pytest.mark.medium
def test_appended_data_continues_the_run(tmp_path):
    short, longer = Synthetic(2, 100), Synthetic(4, 100)
    train(short.solution, short.read, config(tmp_path, passes=2))
    report = train(longer.solution, longer.read, config(tmp_path, passes=2))
    assert report.epochs == 4
    assert set(longer.reads) == {"hour=02/0.parquet", "hour=02/1.parquet", "hour=03/0.parquet", "hour=03/1.parquet"}
    assert (report.ledger.events, report.ledger.exact) == (longer.solution.rows, True)


def test_another_configuration_is_refused_and_nothing_is_touched(tmp_path):
    data = Synthetic(2, 50)
    report = train(data.solution, data.read, config(tmp_path))
    with pytest.raises(RunMismatch, match="option seed is 1, was 0"):
        train(data.solution, data.read, config(tmp_path, seed=1))
    assert str(saved(tmp_path).path) == report.checkpoint


def test_a_bad_label_is_found_before_any_step(tmp_path):
    data = Synthetic(3, 100)
    good = data.tables["hour=01/1.parquet"]
    labels = good["__label__"].to_pylist()
    labels[42] = labels[50] = 2
    data.tables["hour=01/1.parquet"] = good.set_column(good.num_columns - 1, "__label__", pa.array(labels))
    with pytest.raises(BadLabel, match="must be 0 or 1") as caught:
        train(data.solution, data.read, config(tmp_path))
    assert caught.value.where == "fragment hour=01#1, row 42, hour=01/1.parquet, is the first"
    assert "in 2 events of 1 fragment, and 649 that fit" in caught.value.what
    assert saved(tmp_path) is None
    data.tables["hour=01/1.parquet"] = good
    report = train(data.solution, data.read, config(tmp_path))
    assert (report.epochs, report.ledger.exact) == (3, True)


def test_divergence_is_an_error_and_the_last_checkpoint_stays(tmp_path):
    data = Synthetic(2, 500)
    with pytest.raises(NonFiniteLoss, match="diverged") as caught:
        train(data.solution, data.read, config(tmp_path, dense_optimizer="sgd", dense_learning_rate=1e30))
    assert "epoch 0" in caught.value.where
    assert saved(tmp_path) is None


def test_weights_that_diverge_in_an_epochs_last_step_are_not_saved(tmp_path):
    data = Synthetic(2, 100)
    # One batch an epoch: its predictions are made before the update that ruins the weights.
    options = {"batch_rows": 1000, "dense_optimizer": "sgd", "dense_learning_rate": 1e300}
    with pytest.raises(NonFiniteLoss, match="last step") as caught:
        train(data.solution, data.read, config(tmp_path, **options))
    assert "epoch 0" in caught.value.where
    assert saved(tmp_path) is None


@pytest.mark.medium
def test_a_torn_checkpoint_is_passed_over_and_its_epoch_trained_again(tmp_path):
    data, events = Synthetic(3, 100), []
    straight = train(data.solution, data.read, config(tmp_path / "straight"))
    report = train(data.solution, data.read, config(tmp_path / "run"))
    (checkpoints_dir(tmp_path / "run") / "epoch-000003" / "array-0000.npy").write_bytes(b"torn")
    again = train(data.solution, data.read, config(tmp_path / "run"), progress=events.append)
    assert again.epochs == 1
    assert again.ledger.exact
    assert again.history == straight.history == report.history
    (message,) = again.skipped_checkpoints
    assert message.startswith("epoch-000003: a file must have the size")
    assert (events[0].kind, events[0].message) == ("skipped", message)
    assert equal_arrays(saved(tmp_path / "run"), saved(tmp_path / "straight"))


def test_no_partitions_are_nothing_to_train_on(tmp_path):
    with pytest.raises(ConfigError, match="a partition to train on"):
        train(replace(Synthetic(1, 10).solution, partitions=()), pytest.fail, config(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_second_trainer_is_refused(tmp_path):
    data = Synthetic(1, 10)
    with run_lock(tmp_path), pytest.raises(Busy, match="in use by another process"):
        train(data.solution, data.read, config(tmp_path))


def test_a_checkpoint_that_cannot_be_written_is_an_error(tmp_path):
    data = Synthetic(1, 10)
    tmp_path.mkdir(exist_ok=True)
    checkpoints_dir(tmp_path).write_text("in the way")
    with pytest.raises(CheckpointNotWritten):
        train(data.solution, data.read, config(tmp_path))


def test_inputs_that_cannot_be_trained_are_refused_before_anything_is_written(tmp_path):
    solution = Synthetic(1, 10, types={"user": TYPES["user"]}).solution
    text = Synthetic(1, 10).solution.inputs[0]
    bad = replace(solution, inputs=(replace(text, name="query", type=Dense(DType.STRING)),))
    with pytest.raises(UntrainableInput, match="a type that the model takes"):
        train(bad, pytest.fail, config(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("types", [("words", "user"), ("user",), ("price", "mobile"), ("price", "words")])
def test_any_subset_of_inputs_trains(tmp_path, types):
    data = Synthetic(1, 200, types={name: TYPES[name] for name in types})
    assert train(data.solution, data.read, config(tmp_path, count_events=False)).ledger is None


def test_deterministic_mode_refuses_a_process_with_other_threads(tmp_path):
    tf.constant(1.0)  # TensorFlow now runs, with threads that can no longer be set
    data = Synthetic(1, 10)
    sequences = {"words": {"length": 3, "encoder": "mean"}}  # a network in TensorFlow
    with pytest.raises(ConfigError, match="deterministic") as caught:
        train(data.solution, data.read, config(tmp_path, deterministic=True, threads=7, sequences=sequences))
    assert caught.value.allowed == "(7, 1)"
