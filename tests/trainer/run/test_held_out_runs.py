"""Runs with several passes, whose newest events are scored after each of them."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer.late_log import Log
from tests.trainer.synthetic import TYPES, Synthetic, config
from trainer.checkpoints.checkpoint import read_newest
from trainer.run.loop import train
from trainer.run.weights.saved_run import read_newest_run

tf = pytest.importorskip("tensorflow")

#: A log of ids that occur once, whose labels say nothing: all that a model can do is to remember.
USERS = {"user": TYPES["user"].__class__(TYPES["user"].dtype, 8_000)}
REMEMBERS = {"batch_rows": 64, "embedding_learning_rate": 0.3, "dense_learning_rate": 0.02, "dim": 8}


def memorable(partitions=5, rows=300):
    data, numbers = Synthetic(partitions, rows, types=USERS), itertools.count()
    draw = np.random.default_rng(4)
    for path, table in data.tables.items():
        ids = pa.array([next(numbers) for _ in range(table.num_rows)], pa.int64())
        labels = pa.array((draw.random(table.num_rows) < 0.4).astype(np.int64))
        data.tables[path] = pa.table({"user": ids, "__label__": labels})
    return data


def run(data, folder, **options):
    tell = options.pop("progress", None)
    given = config(folder, **{**REMEMBERS, **options})
    return train(data.solution, data.read, given, read_labels=data.read_labels, progress=tell)


def equal_runs(one, other):
    a, b = (read_newest(folder, on_skip=pytest.fail) for folder in (one, other))
    return a.arrays.keys() == b.arrays.keys() and all(
        a.arrays[name].tobytes() == b.arrays[name].tobytes() for name in a.arrays
    )


def test_what_is_learned_by_heart_is_no_quality(tmp_path):
    report = run(memorable(), tmp_path, passes=3, stop_passes_early=False)
    training = [one.scores.normalized_entropy for one in report.history if not one.is_unseen]
    unseen = [one.scores.normalized_entropy for one in report.history if one.is_unseen]
    held_out = [one.scores.normalized_entropy for one in report.held_out.scored]
    assert min(training) < 0.6, "the model remembers what it has seen"
    assert min(*unseen, *held_out) > 0.97
    assert [one.passes for one in report.held_out.scored] == [1, 2, 3]
    assert report.final == next(one.scores for one in reversed(report.history) if one.is_unseen)
    assert report.final.normalized_entropy > 0.97
    assert report.held_out_partitions == ("hour=04",)
    assert report.ledger.exact


@pytest.mark.parametrize("passes", [1, 2, 4])
def test_passes_end_early_and_each_event_is_trained_as_often(tmp_path, passes):
    report = run(memorable(3, 100), tmp_path, passes=passes, stop_passes_early=True)
    done = min(passes, 2)  # the second pass only remembers
    assert (report.ledger.least, report.ledger.most, report.ledger.expected) == (done, done, done)
    assert report.events == done * 3 * 217
    assert [(one.pass_number, len(one.partitions)) for one in report.history] == sorted(
        (one.pass_number, len(one.partitions)) for one in report.history[: 2 * done]
    ) + [(k, 1) for k in range(done)] * (passes > 1) + [(0, 1)] * (passes == 1)
    if passes == 1:
        assert report.held_out is None
    else:
        assert report.held_out.stopped == (2 if passes == 4 else 0)
    again = run(memorable(3, 100), tmp_path, passes=passes, stop_passes_early=True)
    assert (again.events, again.held_out) == (0, report.held_out)


class Killed(Exception):
    pass


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_moment_ends_the_same(tmp_path):
    data, kinds = memorable(3, 100), []
    options = {"passes": 3, "stop_passes_early": True}
    straight = run(data, tmp_path / "straight", progress=lambda event: kinds.append(event.kind), **options)
    assert straight.held_out.stopped == 2
    moments = [k for k, kind in enumerate(kinds) if kind in ("held out", "epoch", "checkpoint")]
    for moment in moments:
        folder, left = tmp_path / f"killed-{moment}", itertools.count(moment, -1)

        def die(event, left=left):
            if next(left) == 0:
                raise Killed

        with pytest.raises(Killed):
            run(data, folder, progress=die, **options)
        report = run(data, folder, **options)
        assert (report.history, report.held_out, report.ledger) == (
            straight.history,
            straight.held_out,
            straight.ledger,
        )
        assert equal_runs(folder, tmp_path / "straight")


@pytest.mark.medium
def test_a_run_that_is_killed_while_it_scores_loses_and_repeats_nothing(tmp_path):
    data, options = memorable(3, 100), {"passes": 3, "stop_passes_early": True}
    straight = run(data, tmp_path / "straight", **options)
    reads, plain = itertools.count(1), data.read

    def read(fragment):
        if fragment.path.startswith("hour=02") and next(reads) in (1, 2, 5):
            raise Killed
        return plain(fragment)

    data.read = read
    for _ in range(3):
        with pytest.raises(Killed):
            run(data, tmp_path / "killed", **options)
    report = run(data, tmp_path / "killed", **options)
    assert (report.history, report.held_out, report.ledger) == (straight.history, straight.held_out, straight.ledger)
    assert equal_runs(tmp_path / "killed", tmp_path / "straight")


def test_a_share_of_0_holds_nothing_out(tmp_path):
    data = memorable(3, 100)
    report = run(data, tmp_path, passes=2, held_out_share=0.0)
    assert report.held_out is None
    assert [one.partitions[0] for one in report.history] == 2 * ["hour=00", "hour=01", "hour=02"]
    longer = memorable(4, 100)
    report = run(longer, tmp_path, passes=2, held_out_share=0.0)
    assert [one.partitions[0] for one in report.history[6:]] == 2 * ["hour=03"]
    assert report.ledger.exact


def test_one_partition_holds_nothing_out(tmp_path):
    report = run(memorable(1, 100), tmp_path, passes=2)
    assert report.held_out is None
    assert [one.is_unseen for one in report.history] == [True, False]
    assert report.final == report.history[0].scores


@pytest.mark.medium
def test_late_labels_and_partitions_come_after_the_held_out_share(tmp_path):
    data = memorable(4, 100)
    whole = dict(data.tables)
    for path in ("hour=00/0.parquet", "hour=03/1.parquet"):
        labels = whole[path]["__label__"].to_pylist()
        labels[:20] = [None] * 20
        data.tables[path] = whole[path].set_column(1, "__label__", pa.array(labels, pa.int64()))
    options = {"passes": 4, "stop_passes_early": True}
    left = itertools.count(30, -1)

    def die(event):
        if next(left) == 0:
            raise Killed

    with pytest.raises(Killed):
        run(data, tmp_path, progress=die, **options)
    assert read_newest_run(tmp_path, on_skip=pytest.fail).progress.held_out.stopped == 0
    for part in data.solution.partitions:
        for fragment in part.fragments:
            if data.tables[fragment.path] is not whole[fragment.path]:
                fragment.digests["clicked"] += "-now"
    data.tables.update(whole)
    report = run(data, tmp_path, **options)
    assert report.held_out.stopped == 2
    assert (report.ledger.events, report.ledger.exact) == (4 * 217, True)
    assert report.history[-1].partitions[0] in ("hour=00", "hour=03")


@pytest.mark.medium
def test_labels_that_change_for_a_pass_that_is_left_out_are_trained_all_the_same(tmp_path):
    """Events of the second pass, trained twice, were to get their new label in the third, which does not come."""
    log, draw = Log(3, 100), np.random.default_rng(8)
    for path, table in log.stored.items():
        noise = pa.array((draw.random(table.num_rows) < 0.4).astype(np.int64))
        log.stored[path] = table.set_column(table.num_columns - 1, "__label__", noise)
    options = {**REMEMBERS, "passes": 4, "stop_passes_early": True, "train_labels": True, "partitions_per_epoch": 1}
    log.train(tmp_path, stop=iter([False, False, True]).__next__, **options)
    known = log.stored["hour=00/0.parquet"]["__label__"].to_pylist()
    log.label("hour=00/0.parquet", [1 - one if k < 30 else one for k, one in enumerate(known)], "now")
    report = log.train(tmp_path, **options)
    assert (report.held_out.stopped, report.late.relabelled) == (2, 30)
    late = [(one.partitions, one.pass_number, one.scores.events) for one in report.history[6:]]
    assert late == [(("hour=00",), 0, 0), (("hour=00",), 1, 30)]
    assert (report.ledger.exact, report.ledger.expected) == (True, 2)
    assert read_newest_run(tmp_path, on_skip=pytest.fail).labels.trained_again == 30
    assert log.train(tmp_path, **options).events == 0
