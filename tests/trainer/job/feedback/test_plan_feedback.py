"""A plan follows its data: it moves where a drift pays for it and nowhere else, and what was decided survives any end."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.mutations import mutated
from tests.trainer.job.feedback.scenes import FEATURES, PRICING, long_lists, sampled
from trainer.errors import ConfigError, TornCheckpoint
from trainer.job.control.job_files import JobFiles
from trainer.job.feedback.epoch_prices import EpochPricing
from trainer.job.feedback.plan_feedback import (
    SPREAD,
    CommittedEpoch,
    PlanFeedback,
    Plans,
    after_epoch,
    name_of,
)
from trainer.job.feedback.plan_log import PlanChange, PlanLog
from trainer.job.feedback.replanning import MOST_CANDIDATES, Candidate
from trainer.job.launch.job_spec import FORMAT, JobSpec
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.scheduling.job import JobSettings
from transforms.errors import StorageError

_STEPS = 200


def by_tables(*first: str) -> PartitionPlan:
    """Whole tables: these on the first host, all others on the second."""
    return PartitionPlan(2, tuple(
        TablePlan(one.table.name, one.table.vocabulary_size, one.table.dim, (Slice(0, one.table.dim, (0 if one.name in first else 1,)),))
        for one in FEATURES
    ))  # fmt: skip


EVEN = by_tables("f0", "f1", "f2")


def begun(plan: PartitionPlan | None) -> tuple[PlanLog, Plans]:
    name = name_of(plan)
    candidates = () if plan is None else (Candidate(SPREAD),)
    return PlanLog(candidates=candidates).with_change(PlanChange(name, "commit")), {SPREAD: None, name: plan}


def follow(
    log: PlanLog, plans: Plans, first: int, epochs: int, *long: str, left_steps: float | None = None, **options: object
) -> tuple[PlanLog, Plans]:
    for commit in range(first, first + epochs):
        epoch = CommittedEpoch(commit, sampled(long_lists(*long), commit), _STEPS, 0.1, left_steps)
        log, plans = after_epoch(log, plans, epoch, PRICING, **options)  # type: ignore[arg-type]
        assert len(log.candidates) <= MOST_CANDIDATES
        assert set(plans) == {log.plan, *(one.plan for one in log.candidates)}
    return log, plans


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


def test_a_plan_that_hosts_cannot_hold_is_no_candidate() -> None:
    _, plans = follow(*begun(EVEN), 1, 3, "f0", "f1", "f2", is_possible=lambda plan: False)
    assert set(plans) <= {name_of(EVEN), SPREAD}


def test_tables_that_do_not_fit_by_the_model_make_no_plan_and_end_nothing() -> None:
    small = EpochPricing(PRICING.features, replace(PRICING.topology, memory_bytes=1 << 20), PRICING.batch_events)
    with pytest.raises(ConfigError):
        small.best(small.facts({}))
    log, plans = begun(EVEN)
    log, plans = after_epoch(log, plans, CommittedEpoch(1, sampled(long_lists("f0"), 1), _STEPS, 0.1, None), small)
    assert log.looked_at == 1


def spec_of(files: JobFiles) -> None:
    JobSpec(FORMAT, "job", JobSettings(hosts=2), None, "home").write(files)


def test_what_was_decided_is_there_after_any_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended before each write in turn: what is begun again has the plan before or the new one, and all that it needs of it."""
    writes = (JobFiles, "put_document"), (PlanLog, "write"), (JobSpec, "write")
    for number, (kind, method) in enumerate(writes):
        run = tmp_path / str(number)
        files = JobFiles(run)
        files.make()
        spec_of(files)
        first = PlanFeedback(files, str(run), PRICING)
        first.begin(EVEN, "commit", 3)
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
        again.begin(again.plan, "commit", 9)
        assert JobSpec.read(files).partition == again.log.plan
        first.close()
        again.close()


def test_the_plans_of_a_lost_job_folder_are_not_trusted(tmp_path: Path) -> None:
    first = PlanFeedback(JobFiles(tmp_path / "job"), str(tmp_path / "run"), PRICING)
    first.begin(EVEN, "commit", 3)
    other = PlanFeedback(JobFiles(tmp_path / "other"), str(tmp_path / "run"), PRICING)
    assert not other.has_plan
    assert other.log.plan == name_of(EVEN)


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
