"""``headrace train --evaluate-commits`` and ``headrace evaluate --follow``: the figures of each commit on a fixed range."""

from __future__ import annotations

import json
import sys

import pytest

from headrace.cli import following_evaluation
from tests.headrace.conftest import UNTRIED
from trainer.errors import TornCheckpoint
from trainer.model.scores import Scores
from trainer.run.progress.evaluation_log import MOST_EVALUATIONS, EvaluatedCommit, EvaluationLog
from transforms.child_process import module_command

RANGE = ("--end", "2026-03-02T03:00", "--test-end", "2026-03-02T04:00")
TESTED = ("--start", "2026-03-02T03:00", "--end", "2026-03-02T04:00")
PLACES = {
    "one process": ((), {}),
    "hosts": (("--hosts", "2"), {}),
    "servers": (("--servers", "2"), {}),
    "hashed on hosts": (("--hosts", "2"), {"hashed": {"user": {"capacity": 100}}}),
    "pruned": ((), {"deep": True, "dim": 4, "pruning": {"budget": 0.5, "round_steps": 3}}),
}


def evaluated(checkpoint, step=1, **options):
    return EvaluatedCommit(checkpoint, 1, step, **{"start": "a", "end": "b", "table_version": 1, "scores": Scores(3, 1, 0.5, 0.7, 1.0), "secs": 0.5, **options})  # fmt: skip


def test_a_log_is_read_as_it_was_written_and_has_a_commit_once(tmp_path):
    assert EvaluationLog.read(tmp_path) == EvaluationLog()
    log = EvaluationLog()
    for one in (evaluated("epoch-000001"), evaluated("epoch-000002", 2), evaluated("epoch-000001", start="c")):
        log = log.with_commit(one)
    log.write(tmp_path)
    assert EvaluationLog.read(tmp_path) == log
    assert log.newest("a", "b") == evaluated("epoch-000002", 2)
    assert log.newest("c", "b") == evaluated("epoch-000001", start="c")
    assert log.newest("a", "c") is None
    again = log.with_commit(evaluated("epoch-000001", 7))
    assert [(one.checkpoint, one.start, one.step) for one in again.commits] == [("epoch-000002", "a", 2), ("epoch-000001", "c", 1), ("epoch-000001", "a", 7)]  # fmt: skip


def test_a_log_has_the_newest_evaluations():
    full = EvaluationLog(commits=tuple(evaluated(f"epoch-{k:06d}") for k in range(MOST_EVALUATIONS)))
    found = full.with_commit(evaluated("epoch-999999"))
    assert (len(found.commits), found.commits[0].checkpoint, found.commits[-1].checkpoint) == (MOST_EVALUATIONS, "epoch-000001", "epoch-999999")  # fmt: skip


@pytest.mark.parametrize("content", [b"{", b'{"format": "other", "commits": []}', b'{"format": "headrace-evaluations-1", "commits": [{}]}'])  # fmt: skip
def test_a_damaged_log_is_refused(tmp_path, content):
    (tmp_path / "evaluations.json").write_bytes(content)
    with pytest.raises(TornCheckpoint):
        EvaluationLog.read(tmp_path)


def test_bad_options_are_refused(trained_once):
    for options, text in (
        (("train", "first", "--evaluate-commits"), "--evaluate-commits must go with a range of events"),
        (("train", "first", *RANGE, "--evaluate-commits", "--launcher", "remote", "--hosts", "2"), "--evaluate-commits needs --launcher local"),
        (("evaluate", "first", "--follow"), "--follow must have a fixed range of events"),
        (("evaluate", "first", *TESTED, "--follow", "--by", "position"), "--follow must go without --by"),
        (("evaluate", "first", *TESTED, "--follow", "--hosts", "a:7000,b:7000", "--rank", "0"), "--follow must go with processes of this machine"),
    ):  # fmt: skip
        assert text in trained_once(*options, status=2).err


@pytest.mark.medium
def test_the_newest_commit_is_evaluated_once_and_shown(trained_once, tmp_path, monkeypatch):
    monkeypatch.setattr(following_evaluation, "closed_input", lambda: lambda: True)
    monkeypatch.setattr(following_evaluation, "lower_priority", lambda: None)
    monkeypatch.setattr("headrace.cli.evaluate.end_with_supervisor", lambda supervisor: None)
    follow = ("evaluate", "first", *TESTED, "--follow", "--supervisor", "1")
    shown = trained_once(*follow)
    assert "epoch-000001, step" in shown.err
    run_dir = tmp_path / "home" / "runs" / "first-v1"
    (found,) = EvaluationLog.read(run_dir).commits
    alone = trained_once("evaluate", "first", *TESTED, "--json").json
    assert (found.scores.events, found.scores.auc, found.scores.log_loss) == (alone["events"], alone["auc"], alone["log_loss"])  # fmt: skip
    assert "epoch-000001, step" not in trained_once(*follow).err, "a commit is evaluated once on a range"
    (row,) = trained_once("status", "--json").json["evaluations"]
    assert (row["run"], row["checkpoint"], row["step"], row["auc"]) == ("first-v1", "epoch-000001", found.step, alone["auc"])  # fmt: skip
    assert f"{alone['auc']:.4f}" in trained_once("status").out


@pytest.mark.slow
@pytest.mark.parametrize("place", sorted(PLACES))
def test_commits_are_evaluated_wherever_the_tables_are(submitted, tmp_path, place):
    arguments, options = PLACES[place]
    config, run_dir = tmp_path / "options.json", tmp_path / "run"
    config.write_text(json.dumps({"batch_rows": 64, **UNTRIED, **options, "events_per_epoch": 60}))
    found = submitted("train", "first", *RANGE, "--config", config, "--run-dir", run_dir, *arguments, "--evaluate-commits", "--json").json  # fmt: skip
    rows = found["evaluations"]
    steps = [one["step"] for one in rows]
    assert steps == sorted({*steps})
    alone = submitted("evaluate", "first", *TESTED, "--run-dir", run_dir, "--json").json
    for name in ("events", "auc", "log_loss", "normalized_entropy", "calibration"):
        assert rows[-1][name] == alone[name] == found["test"][name]
    assert rows[-1]["checkpoint"] == alone["checkpoint"]
    assert len(found["epochs"]) > 1


@pytest.mark.slow
def test_a_training_ends_well_if_its_evaluator_is_killed(submitted, tmp_path, monkeypatch):
    config = tmp_path / "options.json"
    config.write_text(json.dumps({"batch_rows": 64, **UNTRIED}))
    killed = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    monkeypatch.setattr(following_evaluation, "module_command", lambda *words: killed if "evaluate" in words else module_command(*words))  # fmt: skip
    answer = submitted("train", "first", *RANGE, "--config", config, "--evaluate-commits", "--json")
    assert "commits are not evaluated any more: status -9" in answer.err
    assert answer.json["evaluations"] == []
    assert answer.json["test"]["events"] > 0
