"""Events whose labels have changed since they were trained are trained again, once per change, in any order of what happens."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.late_log import Log
from tests.trainer.relabelled_runs import JobRun, Run
from trainer.checkpoints.checkpoint import read_newest
from trainer.checkpoints.manifest import canonical_json
from trainer.errors import ConfigError, RunMismatch, TornCheckpoint
from trainer.run.preparation.job_plan import JobPlan, plan_job
from trainer.run.preparation.preparation import prepare_run
from trainer.run.progress.data_changes import ChangePolicy
from trainer.run.progress.ledger import label_sum
from trainer.run.weights.saved_run import saved_run

TRAIN = ChangePolicy(train_labels=True)
FIRST, SECOND = "hour=00/0.parquet", "hour=01/1.parquet"


def relabel(log: Log, path: str, rows, version: str) -> None:
    """Flip the labels of events, or give one to events without."""
    known = log.stored[path]["__label__"].to_pylist()
    log.label(path, [1 - (label or 0) if k in set(rows) else label for k, label in enumerate(known)], version)


def check_sums(run: Run) -> None:
    """The label sum of each fragment is that of the recorded labels of its trained events."""
    saved = run.saved()
    if saved is not None and saved.labels is not None:
        for fragment, counts in saved.counts.counts():
            places = np.flatnonzero(counts)
            labels = saved.labels.fragments[fragment.key].decode()
            assert fragment.labels == label_sum(places, labels[places])


def change(data: st.DataObject, log: Log, version: str) -> None:
    kind = data.draw(st.sampled_from(["relabel", "relabel", "hide", "retract", "append", "none"]))
    path = data.draw(st.sampled_from(sorted(log.stored)))
    rows = data.draw(st.sets(st.integers(0, log.stored[path].num_rows - 1), max_size=5))
    if kind == "relabel":
        relabel(log, path, rows, version)
    elif kind == "hide":
        known = log.stored[path]["__label__"].to_pylist()
        log.label(path, [None if k in rows else label for k, label in enumerate(known)], version)
    elif kind == "retract":
        log.retract(path, rows, version)
    elif kind == "append" and len(log.stored) < 7:
        log.append(data.draw(st.integers(0, 1)), 6, seed=500 + int(version))


def step(data: st.DataObject, log: Log, run: Run) -> None:
    """One run, which may end early or crash, and may be refused only for a reason."""
    policy = ChangePolicy(
        accept=data.draw(st.sampled_from([False, False, False, True])),
        train_labels=data.draw(st.sampled_from([True, True, True, False])),
    )
    end = data.draw(st.sampled_from(["finish", "finish", "stop", "crash"]))
    after = data.draw(st.integers(0, 6))
    ends = {"stop": {"stop_after": 1 + after % 3}, "crash": {"crash_after": after}}.get(end, {})
    try:
        run.train(log, policy, **ends)
    except RunMismatch:
        assert not policy.accept
        assert not (policy.train_labels and run.account.is_recorded)
        assert run.account.changed(log)
    check_sums(run)


def try_any_order(data: st.DataObject, run: Run) -> None:
    log = Log(2, 12)
    log.hide(FIRST, data.draw(st.sets(st.integers(0, 11), max_size=4)))
    for number in range(data.draw(st.integers(1, 5))):
        step(data, log, run)
        change(data, log, str(number))
    last = ChangePolicy(accept=True, train_labels=True)
    run.train(log, last)
    if run.account.trained:
        run.account.check_finished(log)
    check_sums(run)
    done = run.saved()
    run.train(log, last)
    assert run.saved().number == done.number, "a run that has trained all makes no commit"


def test_a_label_that_is_gone_between_two_passes_plans_nothing_more(log, tmp_path):
    run = Run(tmp_path, 2)
    run.train(log, TRAIN, stop_after=2)  # the first pass
    known = log.hide(FIRST, [4])
    assert run.train(log, TRAIN).epochs == 2
    assert run.train(log, TRAIN).epochs == 0
    log.label(FIRST, known, "back")
    report = run.train(log, TRAIN)
    assert (report.events, report.late.relabelled, report.ledger.exact) == (1, 0, True)


@pytest.mark.medium
@settings(max_examples=scaled(80))
@given(data=st.data(), passes=st.integers(1, 2))
def test_one_process_trains_each_pair_once(data, passes, tmp_path_factory):
    try_any_order(data, Run(tmp_path_factory.mktemp("run"), passes))


@pytest.mark.slow
@settings(max_examples=scaled(60))
@given(data=st.data(), passes=st.integers(1, 2), hosts=st.integers(1, 2))
def test_a_job_trains_each_pair_once(data, passes, hosts, tmp_path_factory):
    try_any_order(data, JobRun(tmp_path_factory.mktemp("run"), passes, hosts))


@pytest.fixture
def log() -> Log:
    return Log(2, 12)


def test_a_changed_label_is_trained_once_and_reported(log, tmp_path):
    known = log.hide(FIRST, [0, 1])
    run = Run(tmp_path, 2)
    first = run.train(log, TRAIN)
    assert (first.late.relabelled, first.ledger.exact) == (0, True)
    log.label(FIRST, [*known[:2], *(1 - label for label in known[2:6]), None, *known[7:]], "changed")
    report = run.train(log, TRAIN)
    assert (report.late.relabelled, report.late.labels, report.events) == (4, 2, 4 + 2 * 2)
    assert report.ledger.exact
    assert run.saved().labels.trained_again == 4
    run.account.check_finished(log)
    assert run.train(log, TRAIN).events == 0
    log.label(FIRST, [*known[:2], *(1 - label for label in known[2:6]), 1 - known[6], *known[7:]], "back as another")
    assert run.train(log, TRAIN).late.relabelled == 1


def test_a_label_that_changes_twice_before_it_is_trained_is_trained_once(log, tmp_path):
    run = Run(tmp_path, 1)
    run.train(log, TRAIN)
    relabel(log, SECOND, [3], "once")
    log.append(0, 6, seed=77)
    run.train(log, TRAIN, stop_after=1)  # the late segment's first partition
    assert run.saved().counts.fragments
    log.label(
        SECOND, [None if k == 3 else v for k, v in enumerate(log.stored[SECOND]["__label__"].to_pylist())], "gone"
    )
    assert run.train(log, TRAIN).late.relabelled == 0
    relabel(log, SECOND, [3], "again")
    report = run.train(log, TRAIN)
    assert (report.events, report.ledger.exact) == (1, True)
    run.account.check_finished(log)


def test_a_deleted_event_is_trained_again_when_it_is_restored(log, tmp_path):
    run = Run(tmp_path, 1)
    run.train(log, TRAIN)
    log.retract(FIRST, [5], "deleted")
    relabel(log, FIRST, [5], "meanwhile")
    report = run.train(log, TRAIN)
    assert (report.events, report.late.retracted, report.late.relabelled) == (0, 1, 0)
    log.retract(FIRST, [], "restored")
    report = run.train(log, TRAIN)
    assert (report.events, report.late.restored, report.late.relabelled) == (1, 0, 1)


def test_labels_move_with_their_fragments(log, tmp_path):
    run = Run(tmp_path, 1)
    run.train(log, TRAIN)
    log.append(0, 6, seed=77)  # comes before the fragments of its partition
    relabel(log, FIRST, [0], "changed")
    report = run.train(log, TRAIN)
    assert (report.late.rows, report.late.relabelled, report.events) == (6, 1, 7)
    run.account.check_finished(log)


def test_a_run_without_a_record_is_refused_only_for_changed_labels(log, tmp_path):
    run = Run(tmp_path, 1)
    run.train(log, ChangePolicy())
    assert run.saved().labels is None
    relabel(log, FIRST, [2, 3], "changed")
    with pytest.raises(RunMismatch) as plain:
        run.train(log, ChangePolicy())
    assert "a run that begins with --train-changed-labels trains such events again" in plain.value.next_step
    with pytest.raises(RunMismatch) as caught:
        run.train(log, TRAIN)
    assert (
        "fragment hour=00#0: the label of trained events has changed, and the labels as trained were not recorded"
        in (caught.value.value)
    )
    assert "--accept-changed, which takes the present labels as those that were trained" in caught.value.next_step
    log.append(1, 6, seed=77)
    report = run.train(log, ChangePolicy(accept=True, train_labels=True))
    assert (report.events, report.late.relabelled, len(report.late.accepted)) == (6, 0, 1)
    relabel(log, FIRST, [2], "changed again")
    with pytest.raises(RunMismatch) as off:
        run.train(log, ChangePolicy())
    assert "train events again whose labels have changed: --train-changed-labels" in off.value.next_step
    assert run.train(log, TRAIN).late.relabelled == 1
    run.account.check_finished(log)


def test_a_run_without_a_record_goes_on_with_one(log, tmp_path):
    run = Run(tmp_path, 2)
    run.train(log, ChangePolicy(), stop_after=2)
    run.train(log, TRAIN)
    relabel(log, SECOND, range(8), "changed")
    report = run.train(log, TRAIN)
    assert (report.events, report.ledger.exact) == (8, True)
    run.account.check_finished(log)


def test_changed_inputs_are_accepted_and_changed_labels_trained(log, tmp_path):
    run = Run(tmp_path, 1)
    run.train(log, TRAIN)
    log._redigest(FIRST, "price", "corrected")
    relabel(log, FIRST, [1], "changed")
    with pytest.raises(RunMismatch):
        run.train(log, TRAIN)
    report = run.train(log, ChangePolicy(accept=True, train_labels=True))
    assert (report.events, report.late.relabelled, len(report.late.accepted)) == (1, 1, 1)


def test_changed_labels_require_counters(log, tmp_path):
    with pytest.raises(ConfigError, match="must count events"):
        log.train(tmp_path / "run", count_events=False, train_labels=True)
    assert not (tmp_path / "run").exists()


def test_a_job_goes_on_with_its_plan_before_it_trains_changed_labels(log, tmp_path):
    run = JobRun(tmp_path, 2, hosts=2)
    run.train(log, TRAIN, stop_after=1)
    relabel(log, FIRST, range(12), "while the plan is not trained")
    run.train(log, TRAIN, crash_after=2)
    run.train(log, TRAIN)
    run.account.check_finished(log)
    assert any(one > 2 for one in run.account.trained.values())
    check_sums(run)


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> JobPlan:
    """A plan with recorded labels, of which some are trained again."""
    log, run = Log(2, 12), Run(tmp_path_factory.mktemp("run"), 2)
    log.hide(FIRST, [3])
    run.train(log, TRAIN)
    relabel(log, SECOND, range(9), "changed")
    prepared = prepare_run(log.solution, run.config, log.read_labels, changes=TRAIN, on_skip=pytest.fail)
    return plan_job(prepared, unit_rows=7)


def test_the_document_of_a_plan_holds_its_labels(plan):
    found = JobPlan.from_bytes(plan.to_bytes(), "plan")
    assert found.to_bytes() == plan.to_bytes()
    assert found.labels.trained_again == 9
    assert {key: one.decode().tobytes() for key, one in found.labels.fragments.items()} == {
        key: one.decode().tobytes() for key, one in plan.labels.fragments.items()
    }


def test_mutated_labels_of_a_plan_are_torn_or_valid(plan):
    document = json.loads(plan.to_bytes())
    labels, random, torn = document["labels"], Random(20261123), 0
    for k in range(scaled(1500)):
        if k % 2:
            other = {**labels, "packed": b64encode(mutated(b64decode(labels["packed"]), random)).decode()}
        else:
            try:
                other = json.loads(mutated(json.dumps(labels).encode(), random, (b"null", b"-1", b"1e9", b"[]", b'""')))
            except ValueError:
                continue
        try:
            JobPlan.from_bytes(json.dumps({**document, "labels": other}).encode(), "plan")
        except TornCheckpoint:
            torn += 1
    assert torn > scaled(500)
    with pytest.raises(TornCheckpoint, match="must have counts"):
        JobPlan.from_bytes(canonical_json({**document, "counts": None}), "plan")


def test_a_checkpoint_whose_label_record_lacks_a_part_is_torn(log, tmp_path):
    run = Run(tmp_path, 1)
    run.train(log, TRAIN)
    whole = read_newest(tmp_path, on_skip=pytest.fail)
    without = {name: array for name, array in whole.arrays.items() if name != "labels"}
    members = {name: value for name, value in whole.document.items() if name != "labels"}
    assert saved_run(replace(whole, document=members, arrays=without)).labels is None
    for parts in ({"document": members}, {"arrays": without}):
        with pytest.raises(TornCheckpoint, match="label record with its array"):
            saved_run(replace(whole, **parts))
