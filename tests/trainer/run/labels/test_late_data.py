"""Rows and labels that arrive after the training of their partition: each event is trained once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.late_log import Log, at_stage
from trainer.checkpoints.checkpoint import read_newest
from trainer.checkpoints.manifest import (
    MANIFEST,
    READABLE,
    STATE,
    CheckpointFile,
    Manifest,
    array_file,
    canonical_json,
    purpose_digest,
)
from trainer.errors import BadLabel, RunMismatch
from trainer.options.document_field import DocumentField
from trainer.run.labels.due_events import counts_after
from trainer.run.progress.identity import RunIdentity

pytest.importorskip("tensorflow")


FIRST, SECOND = "hour=00/0.parquet", "hour=01/1.parquet"


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.medium
def test_events_without_a_label_are_skipped_and_trained_once_it_comes(log, tmp_path):
    known = log.hide(FIRST, range(10, 30))
    first = log.train(tmp_path, passes=2)
    assert (first.unlabelled, first.events) == (20, 2 * (log.solution.rows - 20))
    assert first.ledger.exact
    assert first.ledger.events == log.solution.rows - 20
    assert first.history[0].scores.events == log.solution.partitions[0].rows - 20
    assert log.train(tmp_path, passes=2).events == 0
    log.label(FIRST, [*known[:25], *[None] * 5, *known[30:]], "half")
    second = log.train(tmp_path, passes=2)
    assert (second.late.labels, second.events, second.unlabelled) == (15, 30, 5)
    assert [item.partitions for item in second.history[-2:]] == 2 * [("hour=00",)]
    log.label(FIRST, known, "all")
    third = log.train(tmp_path, passes=2)
    assert (third.late.labels, third.events, third.unlabelled) == (5, 10, 0)
    assert third.ledger.exact
    assert third.ledger.events == log.solution.rows
    assert log.train(tmp_path, passes=2).events == 0


@pytest.mark.medium
def test_a_late_fragment_in_a_trained_partition_is_trained(log, tmp_path):
    before = log.train(tmp_path)
    log.append(0, 40, seed=77)
    after = log.train(tmp_path)
    assert (after.late.rows, after.events, after.epochs) == (40, 40, 1)
    assert after.history[:-1] == before.history
    assert after.ledger.exact
    assert after.ledger.events == before.events + 40


@pytest.mark.medium
def test_a_late_partition_is_trained_wherever_it_lies(tmp_path):
    whole = Log(4)
    part = whole.solution.partitions
    whole.solution = replace(whole.solution, partitions=(part[0], part[3]))
    whole.train(tmp_path)
    whole.solution = replace(whole.solution, partitions=part)
    report = whole.train(tmp_path)
    assert [item.partitions for item in report.history] == [("hour=00",), ("hour=03",), ("hour=01",), ("hour=02",)]
    assert report.ledger.exact


@pytest.mark.medium
def test_a_late_row_in_the_middle_of_a_run_is_trained_as_often_as_all_others(log, tmp_path):
    log.train(tmp_path, passes=3, stop=iter([False] * 3 + [True]).__next__)  # stands in its second pass
    known = log.hide(SECOND, [])
    path = log.append(0, 40, seed=77)
    log.hide(path, [1, 2])
    report = log.train(tmp_path, passes=3)
    assert report.ledger.exact
    assert (report.ledger.least, report.unlabelled) == (3, 2)
    assert len(known) == log.stored[SECOND].num_rows


@pytest.mark.medium
def test_deleted_events_are_not_trained_and_restored_ones_not_twice(log, tmp_path):
    log.retract(FIRST, [3, 4, 5], "some")
    first = log.train(tmp_path)
    log.retract(FIRST, [5, 6, 7, 8], "others")
    second = log.train(tmp_path)
    assert (second.late.restored, second.late.retracted, second.events) == (2, 3, 2)
    assert second.ledger.exact
    log.retract(FIRST, [], "none")
    third = log.train(tmp_path)
    assert (third.late.restored, third.events) == (1, 1)
    assert third.ledger.exact
    assert third.ledger.events == first.ledger.events + 3


@pytest.mark.medium
def test_a_changed_label_of_a_trained_event_is_refused_or_accepted(log, tmp_path):
    known = log.hide(FIRST, [0, 1])
    log.train(tmp_path)
    log.label(FIRST, [*known[:2], 1 - known[2], *known[3:]], "changed")
    with pytest.raises(RunMismatch) as caught:
        log.train(tmp_path)
    assert "fragment hour=00#0: the label of trained events has changed" in caught.value.value
    report = log.train(tmp_path, accept_changed=True)
    assert (report.events, report.late.labels, len(report.late.accepted)) == (2, 2, 1)
    assert report.ledger.exact
    assert log.train(tmp_path).events == 0


def test_a_label_that_is_null_again_is_a_changed_label(log, tmp_path):
    known = log.stored[FIRST]["__label__"].to_pylist()
    log.train(tmp_path)
    at = known.index(0)
    log.label(FIRST, [*known[:at], None, *known[at + 1 :]], "gone")
    with pytest.raises(RunMismatch):
        log.train(tmp_path)


def test_changed_inputs_of_a_trained_fragment_are_refused_or_accepted(log, tmp_path):
    log.train(tmp_path)
    log._redigest(FIRST, "price", "corrected")
    with pytest.raises(RunMismatch) as caught:
        log.train(tmp_path)
    assert caught.value.value == "partition hour=00: fragment 0 (100 rows) is gone or has other content"
    assert "--accept-changed" in caught.value.next_step
    report = log.train(tmp_path, accept_changed=True)
    assert report.events == 0
    assert report.late.accepted == ("partition hour=00: the inputs' values of fragment 0 (100 rows) differ",)
    with pytest.raises(RunMismatch):  # nothing was trained, so the checkpoint is of the old data still
        log.train(tmp_path)


def test_a_fragment_of_another_size_does_not_count_as_trained(log, tmp_path):
    log.train(tmp_path)
    log._redigest(FIRST, "price", "rewritten")
    log._change(FIRST, rows=99)
    for accept in (False, True):
        with pytest.raises(RunMismatch):
            log.train(tmp_path, accept_changed=accept)


def test_without_counts_a_changed_partition_is_refused(log, tmp_path):
    log.train(tmp_path, count_events=False)
    log.append(0, 40, seed=77)
    with pytest.raises(RunMismatch, match="a run must continue") as caught:
        log.train(tmp_path, count_events=False)
    assert "count_events" in caught.value.value


def test_a_range_without_any_label_is_refused(log, tmp_path):
    for path, table in log.tables.items():
        log.hide(path, range(table.num_rows))
    with pytest.raises(BadLabel, match="at least one event"):
        log.train(tmp_path)


@settings(max_examples=scaled(300))
@given(visits=st.lists(st.integers(0, 4), max_size=8), count=st.integers(0, 255))
def test_an_event_is_trained_at_most_once_a_visit(visits, count):
    after = counts_after(visits)
    assert count <= after[count] <= count + len(visits)
    trained = count
    for pass_number in visits:
        trained += trained <= pass_number
    assert after[count] == trained


@pytest.mark.slow
@settings(
    max_examples=scaled(12), phases=[Phase.explicit, Phase.generate]
)  # every example builds models: shrinking takes minutes
@given(data=st.data())
def test_every_event_is_trained_once_per_pass_in_any_order_of_arrival(data, tmp_path_factory):
    """Random changes between runs that may stop after any epoch; the batches, not the ledger, are the witness."""
    log, run_dir = Log(2, 30), tmp_path_factory.mktemp("run")
    passes = data.draw(st.integers(1, 2))
    truth = {path: table["__label__"].to_pylist() for path, table in log.stored.items()}
    for path in list(truth):
        log.hide(path, data.draw(st.sets(st.integers(0, 29), max_size=10)))
    for step in range(data.draw(st.integers(1, 3))):
        stops = data.draw(st.lists(st.booleans(), max_size=3))
        answers = iter(stops)
        log.train(run_dir, passes=passes, stop=lambda answers=answers: next(answers, False))
        change = data.draw(st.sampled_from(["labels", "rows", "retract"]))
        path = data.draw(st.sampled_from(sorted(truth)))
        if change == "labels":
            known = log.stored[path]["__label__"].to_pylist()
            shown = data.draw(st.sets(st.integers(0, 29)))
            log.label(path, [truth[path][k] if k in shown else value for k, value in enumerate(known)], f"l{step}")
        elif change == "rows":
            new = log.append(data.draw(st.integers(0, 1)), 30, seed=500 + step)
            truth[new] = log.stored[new]["__label__"].to_pylist()
        else:
            log.retract(path, data.draw(st.sets(st.integers(0, 29), max_size=6)), f"r{step}")
    report = log.train(run_dir, passes=passes)
    live = sum(int(mask.sum()) for mask in log.live.values())
    missing = sum(
        sum(
            label is None for label, alive in zip(log.stored[path]["__label__"].to_pylist(), mask, strict=True) if alive
        )
        for path, mask in log.live.items()
    )
    assert report.ledger.exact
    assert report.ledger.events == live - missing
    assert report.unlabelled == missing


def test_the_batches_hold_each_late_event_once(log, tmp_path, monkeypatch):
    from trainer.run.weights.run_state import Weights

    seen: Counter[tuple[str, int]] = Counter()
    real = Weights.differentiate

    def spy(self, batch, looked_up):
        for span in batch.spans:
            seen.update((span.key, int(k)) for k in np.arange(10_000)[span.events])
        return real(self, batch, looked_up)

    monkeypatch.setattr(Weights, "differentiate", spy)
    known = log.hide(FIRST, range(0, 100, 3))
    log.train(tmp_path, passes=2)
    log.label(FIRST, known, "all")
    log.retract(SECOND, [7], "seven")
    log.train(tmp_path, passes=2)
    assert set(seen.values()) == {2}
    assert len(seen) == sum(table.num_rows for table in log.stored.values())


class Crash(Exception):
    """Stands for a process that ends in the middle of an epoch."""


def crash_after(batches: int):
    left = iter(range(batches))

    def progress(event) -> None:
        if event.kind == "batch" and next(left, None) is None:
            raise Crash

    return progress


@pytest.mark.slow
def test_crashes_before_and_after_late_data_leave_no_trace(tmp_path):
    """``test_chaos.py`` does so with SIGKILL; here every crash is in a stage where labels, rows or retractions just came."""
    for stage, crashes in ((0, (3, 9)), (1, (0, 2, 6))):
        log = at_stage(stage)
        straight = log.train(tmp_path / "straight", passes=2)
        for batches in crashes:
            with pytest.raises(Crash):
                log.train(tmp_path / "crashed", passes=2, progress=crash_after(batches))
        resumed = log.train(tmp_path / "crashed", passes=2)
        assert resumed.ledger == straight.ledger
        assert resumed.ledger.exact
        assert resumed.history == straight.history
        one, other = (read_newest(tmp_path / name, on_skip=pytest.fail) for name in ("straight", "crashed"))
        assert one.digest == other.digest
    assert (straight.late.labels, straight.late.rows, straight.late.retracted) == (24, 400, 10)


def as_an_older_release(checkpoint) -> None:
    """Rewrite a checkpoint as format 2 has it: whole partitions, counts of events that were not retracted, no head."""
    document = json.loads((checkpoint / STATE).read_text())
    del document["head"], document["identity"]["fragments"]
    for fragment in document["ledger"]["fragments"]:
        del fragment["labels"]
    identity = RunIdentity.read(DocumentField(document["identity"], "identity"))
    document["position"]["data_digest"] = identity.data_digest
    manifest = Manifest.from_bytes((checkpoint / MANIFEST).read_bytes(), MANIFEST)
    (checkpoint / STATE).write_bytes(canonical_json(document))

    def stored(file, *purpose: str) -> CheckpointFile:
        data, digest = file.read_bytes(), purpose_digest(*purpose, form=READABLE[1])
        digest.update(data)
        return CheckpointFile(len(data), digest.hexdigest())

    arrays = tuple(
        (name, stored(checkpoint / array_file(k), "array", name)) for k, (name, _) in enumerate(manifest.arrays)
    )
    old = Manifest(manifest.epochs_done, stored(checkpoint / STATE, "state"), arrays, READABLE[1])
    (checkpoint / MANIFEST).write_bytes(old.to_bytes())


def test_a_checkpoint_of_an_older_release_can_be_resumed(log, tmp_path):
    straight = log.train(tmp_path / "straight", passes=2)
    stopped = log.train(tmp_path / "run", passes=2, stop=iter([False, True]).__next__)
    as_an_older_release(Path(stopped.checkpoint))
    report = log.train(tmp_path / "run", passes=2)
    assert report.history == straight.history
    assert (report.epochs, report.ledger.exact) == (4, True)
    log.append(0, 40, seed=77)
    late = log.train(tmp_path / "run", passes=2)
    assert (late.late.rows, late.events, late.ledger.exact) == (40, 80, True)


def test_late_rows_right_after_an_older_release_are_refused(log, tmp_path):
    report = log.train(tmp_path)
    as_an_older_release(Path(report.checkpoint))
    log.append(0, 40, seed=77)
    with pytest.raises(RunMismatch) as caught:
        log.train(tmp_path)
    assert "older release" in caught.value.value
