"""A plan follows its data: it moves where a drift pays for it and nowhere else, and what was decided survives any end."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.feedback.scenes import FEATURES, PRICING, by_tables, long_lists, sampled
from trainer.errors import ConfigError, TornCheckpoint
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import Progress
from trainer.job.feedback import plan_feedback
from trainer.job.feedback.epoch_prices import EpochPricing
from trainer.job.feedback.plan_feedback import (
    MOST_WAITING,
    SPREAD,
    CommittedEpoch,
    PlanFeedback,
    Plans,
    after_epoch,
    name_of,
)
from trainer.job.feedback.plan_log import PlanChange, PlanLog
from trainer.job.feedback.replanning import MOST_CANDIDATES, Candidate, EpochPrices
from trainer.job.launch.job_spec import FORMAT, JobSpec
from trainer.planning.plan import PartitionPlan
from trainer.scheduling.job import JobSettings
from transforms.errors import HeadraceError, StorageError

_STEPS = 200


EVEN = by_tables("f0", "f1", "f2")
SKEWED = sampled(long_lists("f0", "f1", "f2"), 1)


class _OnePrice(EpochPricing):
    """Prices each plan at 2 s a step and spread rows at 1 s, makes no other plan, and expects moves to cost more than anything saves."""

    def loads(self, plan: PartitionPlan | None, facts: object) -> Any:
        return SimpleNamespace(step_secs=1.0 if plan is None else 2.0, imbalance=1.0)

    def best(self, facts: object) -> None:
        return None

    def move_secs(self, facts: object) -> float:
        return 1e12


ONE_PRICE = _OnePrice(PRICING.features, PRICING.topology, PRICING.batch_events)


def begun(plan: PartitionPlan | None) -> tuple[PlanLog, Plans]:
    name = name_of(plan)
    candidates = () if plan is None else (Candidate(SPREAD),)
    return PlanLog(candidates=candidates).with_change(PlanChange(name, "commit")), {SPREAD: None, name: plan}


def follow(
    log: PlanLog, plans: Plans, first: int, epochs: int, *long: str, left_steps: float | None = None, **options: object
) -> tuple[PlanLog, Plans]:
    for commit in range(first, first + epochs):
        step = (log.counted_step or 0) + _STEPS
        epoch = CommittedEpoch(commit, sampled(long_lists(*long), commit), step, 0.1, left_steps)
        log, plans = after_epoch(log, plans, epoch, PRICING, **options)  # type: ignore[arg-type]
        assert len(log.candidates) <= MOST_CANDIDATES
        assert set(plans) == {log.plan, *(one.plan for one in log.candidates)}
    return log, plans


@pytest.mark.medium
def test_a_drift_that_makes_one_host_busy_moves_the_tables_once() -> None:
    log, plans = follow(*begun(EVEN), 1, 4, "f0", "f3")
    assert [one.reason for one in log.changes] == ["commit"], "both hosts are as busy: nothing moves"
    assert log.imbalance < 1.1
    log, plans = follow(log, plans, 5, 1, "f0", "f1", "f2")
    assert log.imbalance > 1.5
    log, plans = follow(log, plans, 6, 14, "f0", "f1", "f2")
    _, move = log.changes
    assert move.reason == "pays"
    assert move.new_step_secs < 0.9 * move.step_secs
    assert move.imbalance > 1.5 > 1.1 > move.new_imbalance
    assert move.saved_secs >= move.move_secs > 0
    tables = sum(one.table.vocabulary_size * one.table.dim * 8 for one in FEATURES)
    assert 0 < move.moved_bytes < tables
    assert move.measured_secs == 0.1
    assert log.looks == 19


def test_rows_that_are_spread_stay_whatever_drifts() -> None:
    log, plans = begun(None)
    for at in range(4):
        log, plans = follow(log, plans, 1 + at, 1, *(("f0", "f1"), ("f2",), ("f3", "f4", "f5"), ())[at])
    assert log.plan == SPREAD
    assert log.candidates == ()
    assert log.imbalance < 1.05


def test_a_job_that_ends_soon_does_not_move() -> None:
    log, _ = follow(*begun(EVEN), 1, 10, "f0", "f1", "f2", left_steps=1.0)
    assert len(log.changes) == 1
    sample = PRICING.facts(sampled(long_lists("f0"), 1))
    assert max(one.saved_secs for one in log.candidates) > PRICING.move_secs(sample), "with no end it pays"


def test_the_best_plan_of_a_sample_is_a_candidate_if_hosts_can_hold_it() -> None:
    log, plans = begun(EVEN)
    alone = replace(log, candidates=())
    best = PRICING.best(PRICING.facts(sampled(long_lists("f0", "f1", "f2"), 1)))
    found, known = follow(alone, plans, 1, 1, "f0", "f1", "f2")
    assert found.candidates == (Candidate(name_of(best)),), "it has saved nothing yet"
    assert known == {name_of(EVEN): EVEN, name_of(best): best}
    found, known = follow(alone, plans, 1, 1, "f0", "f1", "f2", is_possible=lambda plan: plan != best)
    assert found.candidates == ()
    assert known == {name_of(EVEN): EVEN}


def test_tables_that_do_not_fit_by_the_model_make_no_plan_and_end_nothing() -> None:
    small = EpochPricing(PRICING.features, replace(PRICING.topology, memory_bytes=1 << 20), PRICING.batch_events)
    assert small.best(small.facts({})) is None
    log, plans = begun(EVEN)
    log, plans = after_epoch(log, plans, CommittedEpoch(1, sampled(long_lists("f0"), 1), _STEPS, 0.1, None), small)
    assert log.looked_at == 1


def spec_of(files: JobFiles) -> None:
    JobSpec(FORMAT, "job", JobSettings(hosts=2), None, "home").write(files)


@pytest.mark.medium
def test_what_was_decided_is_there_after_any_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended before each write in turn: what is begun again has the plan before or the new one, and all that it needs of it."""
    writes = (JobFiles, "put_document"), (PlanLog, "write"), (JobSpec, "write")
    for number, (kind, method) in enumerate(writes):
        run = tmp_path / str(number)
        files = JobFiles(run)
        files.make()
        spec_of(files)
        first = PlanFeedback(files, str(run), PRICING)
        first.begin(EVEN, "commit", 3, 30)
        assert JobSpec.read(files).partition == name_of(EVEN)
        log, plans = follow(first.log, {SPREAD: None, name_of(EVEN): EVEN}, 4, 16, "f0", "f1", "f2")
        assert log.plan != name_of(EVEN)

        def end(*arguments: object) -> None:
            raise StorageError("the process ends here")

        with monkeypatch.context() as patched:
            patched.setattr(kind, method, end)
            with pytest.raises(StorageError, match="ends here"):
                first._take(log, plans)
        again = PlanFeedback(files, str(run), PRICING)
        assert again.has_plan
        assert again.plan == (EVEN if number < 2 else plans[log.plan])
        assert again.log == (first.log if number < 2 else log)
        again.begin(again.plan, "commit", 9, 90)
        assert JobSpec.read(files).partition == again.log.plan
        first.close()
        again.close()


def test_the_plans_of_a_lost_job_folder_are_not_trusted(tmp_path: Path) -> None:
    first = PlanFeedback(JobFiles(tmp_path / "job"), str(tmp_path / "run"), PRICING)
    first.begin(EVEN, "commit", 3, 30)
    other = PlanFeedback(JobFiles(tmp_path / "other"), str(tmp_path / "run"), PRICING)
    assert not other.has_plan
    assert other.log.plan == name_of(EVEN)


def test_what_a_move_took_is_what_the_next_one_is_expected_to_cost() -> None:
    """The newest that was measured; before one was, what is assumed."""
    log, plans = begun(EVEN)
    log = replace(log, candidates=(Candidate(SPREAD, 1e3),))
    facts = PRICING.facts({})
    assumed = pytest.approx(PRICING.move_secs(facts))
    for pauses, expected in (((None,), assumed), ((3.0, None), 3.0), ((3.0, 0.5), 0.5), ((0.0,), 0.0)):
        measured = replace(log, changes=tuple(replace(log.changes[0], pause_secs=one) for one in pauses))
        moved, _ = follow(measured, plans, 12, 1, "f0", "f1", "f2")
        change = moved.changes[len(pauses)]
        assert (change.plan, change.commit, change.move_secs) == (SPREAD, 12, expected)
        assert change.moved_bytes == PRICING.moved_bytes(EVEN, None, facts)
        assert change.saved_secs > 1e3
        assert (moved.looked_at, moved.imbalance) == (12, change.new_imbalance)


def test_a_candidate_whose_plan_is_not_known_is_dropped() -> None:
    log, plans = begun(EVEN)
    log = replace(log, candidates=(*log.candidates, Candidate("f" * 64, 1e9)), looks=3)
    log, plans = follow(log, plans, 5, 1)
    assert "f" * 64 not in {one.plan for one in log.candidates}
    assert (log.looked_at, log.looks, log.plan) == (5, 4, name_of(EVEN))


def status(attempt: int, step: int, partition: str) -> Any:
    member = SimpleNamespace(rank=0, progress=Progress(attempt, step))
    return SimpleNamespace(attempt=attempt, partition=partition, members=(member,))


class Scene:
    """A job that follows its data, at times that the test gives."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.now, self.said = 0.0, list[str]()
        self.files = JobFiles(folder)
        self.files.make()
        spec_of(self.files)
        self.run = str(folder)
        self.feedback = PlanFeedback(
            self.files, self.run, PRICING, say=self.said.append, clock=lambda: self.now, **options
        )

    def see(self, at: float, attempt: int, step: int, partition: str) -> None:
        self.now = at
        self.feedback.see(status(attempt, step, partition))

    def decide(self, at: float, attempt: int, step: int, partition: str) -> None:
        """See a job once what was asked for last is decided."""
        wait([self.feedback._planning])
        self.see(at, attempt, step, partition)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(tmp_path)
    yield found
    found.feedback.close()


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is asked of the decision about a commit, which is a move to spread rows unless an error is put first."""
    asked: list[Any] = []

    def after(log: PlanLog, plans: Plans, epoch: CommittedEpoch, *others: object) -> tuple[PlanLog, Plans]:
        if asked and isinstance(asked[0], HeadraceError):
            raise asked[0]
        asked.append((epoch, *others))
        change = PlanChange(
            SPREAD, "pays", epoch.commit, step_secs=2.0, new_step_secs=1.0, saved_secs=7.0, move_secs=6.0
        )
        return replace(log.with_change(change), looked_at=epoch.commit), {SPREAD: None, name_of(EVEN): EVEN}

    monkeypatch.setattr(plan_feedback, "after_epoch", after)
    return asked


def test_a_commit_moves_the_tables_and_the_move_is_measured(scene: Scene, decided: list[Any]) -> None:
    feedback, even = scene.feedback, name_of(EVEN)
    assert not feedback.has_plan
    feedback.begin(EVEN, "statistics", 0, 0)
    assert feedback.log == PlanLog(
        changes=(PlanChange(even, "statistics"),), candidates=(Candidate(SPREAD),), counted_step=0
    )
    scene.see(10.0, 1, 2, even)
    scene.see(11.0, 1, 12, even)
    assert feedback.log.changes[0].new_measured_secs == pytest.approx(0.1)
    assert feedback.log.changes[0].pause_secs is None, "there was no plan before"
    feedback.committed(1, 1, 12, {}, 50.0)
    scene.decide(12.0, 1, 22, even)
    assert [one[0] for one in decided] == [CommittedEpoch(1, {}, 12, pytest.approx(0.1), 50.0)]
    assert feedback.log.looked_at == 1
    assert feedback.plan is None
    assert (
        feedback.wanted(status(1, 22, even))
        == JobSpec.read(scene.files).partition
        == PlanLog.read(scene.run).plan
        == SPREAD
    )
    assert scene.said == [
        "the tables move after this epoch: by the other plan a step takes 0.50 of the time, 7.0 s were lost, a move costs 6.0 s"
    ]
    scene.see(15.0, 2, 1, SPREAD)
    scene.see(15.5, 2, 3, SPREAD)
    newest = PlanLog.read(scene.run).changes[-1]
    assert newest.new_measured_secs == pytest.approx(0.25)
    assert newest.pause_secs == pytest.approx(15.0 - 12.0 - 0.25)
    scene.see(30.0, 2, 4, SPREAD)
    assert feedback.log.changes[-1] == newest, "an attempt is measured once"
    scene.see(40.0, 3, 1, SPREAD)
    scene.see(41.0, 3, 2, SPREAD)
    assert feedback.log.changes[-1] == replace(newest, new_measured_secs=pytest.approx(1.0)), (
        "by the same plan there was no move"
    )


def test_an_attempt_by_an_earlier_plan_measures_nothing_of_the_newest(scene: Scene) -> None:
    scene.feedback.begin(None, "commit", 4, 40)
    before = scene.feedback.log
    assert before.candidates == ()
    for step in (1, 9):
        scene.see(float(step), 1, step, name_of(EVEN))
    assert scene.feedback.log == before


def test_a_look_at_the_job_waits_for_no_decision(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def after(log: PlanLog, plans: Plans, *others: object) -> tuple[PlanLog, Plans]:
        assert go_on.wait(PATIENCE_SECS)
        return replace(log, looked_at=4), plans

    monkeypatch.setattr(plan_feedback, "after_epoch", after)
    scene.feedback.begin(EVEN, "commit", 3, 30)
    scene.see(1.0, 1, 5, name_of(EVEN))
    scene.feedback.committed(4, 1, 40, {}, None)
    scene.see(2.0, 1, 6, name_of(EVEN))
    assert scene.feedback.log.looked_at == 3
    go_on.set()
    scene.decide(3.0, 1, 7, name_of(EVEN))
    assert scene.feedback.log.looked_at == 4


@pytest.mark.parametrize("commit", [3, 2])
def test_a_commit_that_was_looked_at_is_not_again(scene: Scene, decided: list[Any], commit: int) -> None:
    scene.feedback.begin(EVEN, "commit", 3, 30)
    scene.see(1.0, 1, 5, name_of(EVEN))
    scene.feedback.committed(commit, 1, 40, {}, None)
    assert scene.feedback._planning is None
    assert decided == []


def test_commits_that_come_during_a_decision_are_looked_at_after_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the times: each is looked at once and in order, also those without times of steps, and at the end none is left."""
    go_on, seen = threading.Event(), list[tuple[int, int, float | None]]()

    def after(log: PlanLog, plans: Plans, epoch: CommittedEpoch, *others: object) -> tuple[PlanLog, Plans]:
        assert go_on.wait(PATIENCE_SECS)
        seen.append((epoch.commit, epoch.step - (log.counted_step or 0), epoch.step_secs))
        return replace(log, looked_at=epoch.commit, looks=log.looks + 1, counted_step=epoch.step), plans

    monkeypatch.setattr(plan_feedback, "after_epoch", after)
    scene.feedback.begin(EVEN, "commit", 3, 30)
    scene.see(1.0, 1, 5, name_of(EVEN))
    scene.see(2.0, 1, 10, name_of(EVEN))
    for commit in (4, 5, 5, 4, 6):
        scene.feedback.committed(commit, 1 if commit == 4 else 9, commit * 10, {}, None)
    assert scene.feedback.log.looked_at == 3
    go_on.set()
    scene.decide(3.0, 2, 1, name_of(EVEN))
    assert scene.feedback.log.looked_at == 4
    scene.feedback.committed(7, 9, 75, {}, None)
    scene.feedback.finish()
    assert seen == [(4, 10, pytest.approx(0.2)), (5, 10, None), (6, 10, None), (7, 15, None)]
    assert (scene.feedback.log.looked_at, scene.feedback.log.looks) == (7, 4)
    assert PlanLog.read(scene.run) == scene.feedback.log
    scene.feedback.finish()


def test_of_many_commits_that_wait_the_oldest_count_by_the_sample_of_the_next(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, steps = threading.Event(), list[int]()

    def after(log: PlanLog, plans: Plans, epoch: CommittedEpoch, *others: object) -> tuple[PlanLog, Plans]:
        assert go_on.wait(PATIENCE_SECS)
        steps.append(epoch.step - (log.counted_step or 0))
        return replace(log, looked_at=epoch.commit, counted_step=epoch.step), plans

    monkeypatch.setattr(plan_feedback, "after_epoch", after)
    scene.feedback.begin(EVEN, "commit", 0, 0)
    for commit in range(1, MOST_WAITING + 5):
        scene.feedback.committed(commit, 1, commit * 10, {}, None)
    go_on.set()
    scene.feedback.finish()
    assert steps == [10, 40, *[10] * (MOST_WAITING - 1)]
    assert scene.feedback.log.looked_at == MOST_WAITING + 4


@given(st.data())
@settings(max_examples=scaled(15))
def test_steps_are_counted_once_whatever_ends_the_command(data: st.DataObject) -> None:
    """Commands that are killed between any two commits, and commits that are removed before they are read: what is collected has all steps once."""
    steps = data.draw(st.lists(st.integers(1, 300), min_size=1, max_size=8), label="steps of each epoch")
    removed = data.draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)), label="removed")
    removed[-1] = False
    with tempfile.TemporaryDirectory() as folder:
        files = JobFiles(Path(folder))
        files.make()
        spec_of(files)
        feedback = PlanFeedback(files, folder, ONE_PRICE)
        feedback.begin(EVEN, "commit", 0, 0)
        total = 0
        for commit, (own, is_removed) in enumerate(zip(steps, removed, strict=True), 1):
            total += own
            if is_removed:
                continue
            feedback.committed(commit, 1, total, SKEWED, None)
            if data.draw(st.booleans(), label="the command is killed"):
                feedback.close()  # what is being decided is lost
                feedback = PlanFeedback(files, folder, ONE_PRICE)
                feedback.go_on(commit, total)
                for again in range(feedback.log.looked_at + 1, commit + 1):
                    if not removed[again - 1]:
                        feedback.committed(again, 1, sum(steps[:again]), SKEWED, None)
        feedback.finish()
        feedback.close()
    (spread,) = [one for one in feedback.log.candidates if one.plan == SPREAD]
    saving = EpochPrices(1, None, {"now": 2.0, SPREAD: 1.0}, {}).saving_secs("now", SPREAD)
    assert spread.saved_secs == pytest.approx(saving * total)
    assert feedback.log.counted_step == total


def test_a_log_of_an_earlier_release_counts_from_the_newest_commit_on(scene: Scene) -> None:
    PlanLog(looked_at=2, looks=2).with_change(PlanChange(SPREAD, "commit")).write(scene.run)
    assert b"counted_step" not in (Path(scene.run) / "plans.json").read_bytes()
    feedback = PlanFeedback(scene.files, scene.run, PRICING)
    feedback.go_on(7, 700)
    assert (feedback.log.looked_at, feedback.log.counted_step, feedback.log.looks) == (7, 700, 2)
    feedback.go_on(8, 800)
    assert feedback.log.counted_step == 700, "from then on the log says itself"
    assert PlanLog.read(scene.run) == feedback.log
    feedback.close()


def test_an_epoch_without_times_is_priced_by_the_step_that_was_measured_last() -> None:
    """So that a model that says more than a whole step takes is scaled down for it, too."""
    log, plans = begun(EVEN)
    sample, collected = sampled(long_lists("f0", "f1", "f2"), 5), list[float]()
    for measured, own in ((1e-6, None), (None, 1e-6), (None, None)):
        before = log if measured is None else log.with_measured(measured, None)
        found, _ = after_epoch(before, plans, CommittedEpoch(1, sample, _STEPS, own, 0.0), PRICING)
        collected.append(max(one.saved_secs for one in found.candidates))
    assert 0 < collected[0] == collected[1] < collected[2] / 100


def test_a_commit_of_which_nothing_can_be_decided_ends_nothing(scene: Scene, decided: list[Any]) -> None:
    decided.append(ConfigError("no plan here"))
    scene.feedback.begin(EVEN, "commit", 3, 30)
    before = scene.feedback.log
    scene.see(1.0, 1, 5, name_of(EVEN))
    scene.feedback.committed(4, 1, 40, {}, None)
    scene.decide(2.0, 1, 5, name_of(EVEN))
    assert scene.said == ["the plan of the tables was not looked at, training goes on: no plan here"]
    assert scene.feedback.log == before
    del decided[:]
    scene.feedback.committed(5, 1, 50, {}, None)
    scene.decide(3.0, 1, 5, name_of(EVEN))
    assert scene.feedback.log.plan == SPREAD, "the next one is looked at"


def test_after_the_end_nothing_is_looked_at(scene: Scene) -> None:
    scene.feedback.begin(EVEN, "commit", 3, 30)
    scene.see(1.0, 1, 5, name_of(EVEN))
    scene.feedback.close()
    with pytest.raises(RuntimeError):
        scene.feedback.committed(4, 1, 40, {}, None)


def test_a_plan_that_does_not_change_is_not_announced(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.feedback.begin(EVEN, "commit", 3, 30)
    monkeypatch.setattr(JobSpec, "write", None)  # the document of the job stays
    log, plans = follow(scene.feedback.log, {SPREAD: None, name_of(EVEN): EVEN}, 4, 1)
    scene.feedback._apply(log, plans)
    assert scene.said == []
    assert PlanLog.read(scene.run) == log


@pytest.mark.medium
def test_damaged_logs_give_one_error(tmp_path: Path) -> None:
    log, _ = follow(*begun(EVEN), 1, 12, "f0", "f1", "f2")
    log.with_measured(0.05, 2.5).write(tmp_path)
    place = tmp_path / "plans.json"
    content = place.read_bytes()
    assert PlanLog.read(tmp_path) == log.with_measured(0.05, 2.5)
    source, refused = random.Random(1), 0
    for _ in range(1500):
        place.write_bytes(mutated(content, source, (b"null", b"-1", b"1e400", b"NaN", b"[]", b'"pays"')))
        try:
            PlanLog.read(tmp_path)
        except TornCheckpoint:
            refused += 1
    assert refused > 1000
