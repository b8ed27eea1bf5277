"""This release goes on from what a job of an earlier release has left: its commits, plans, phases and hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.headrace.kept_run import EARLIER, HOLD, HOURS, ROWS, land, train, trained, unpack
from trainer.checkpoints.checkpoint import read_newest
from trainer.job.control.event_log import read_log
from trainer.job.control.job_files import JobFiles
from trainer.job.feedback.plan_log import PlanLog
from trainer.job.launch.holds import find_hold
from trainer.job.launch.job_spec import JobSpec
from trainer.job.launch.phase_log import PhaseLog


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    unpack(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refuse(reason: str) -> None:
    raise AssertionError(reason)


@pytest.mark.medium
def test_what_an_earlier_release_has_left_is_read(cli: Any, kept: Path) -> None:
    """A commit of hosts and one with the shard of a server, each verified; and what was planned, in which phase, and that the job is held."""
    commits = cli("ckpt", "ls", "run", "--json").json["checkpoints"]
    assert len(commits) == 2
    cli("ckpt", "verify", "run")
    newest = read_newest(kept / "run", on_skip=refuse)
    assert newest is not None
    assert newest.document["job"]["release"] != ""
    assert any(name.startswith("embedding/") for name in newest.arrays), "its tables are in the shard of the server"
    log = PlanLog.read(kept / "run")
    assert (log.looks, log.looked_at, log.plan) == (HOURS - 1, HOURS - 1, "")
    assert cli("plan", "history", "run", "--json").json["followed"]["looks"] == HOURS - 1
    phases = PhaseLog.read(kept / "run")
    assert phases.is_caught_up
    assert [one.events for one in phases.runs if one.events] == [(HOURS - 1) * ROWS, ROWS]
    assert find_hold(JobFiles(kept / "run")) == HOLD


@pytest.mark.slow
def test_this_release_goes_on_with_a_job_of_an_earlier_one(cli: Any, kept: Path) -> None:
    """Held until a person releases it; then by a server as before, and by hosts that follow their data; each event once."""
    land(kept, HOURS)
    held = train(kept)
    assert held.returncode == 7, held.stderr
    assert HOLD.reason in held.stderr
    files = JobFiles(kept / "run")
    spec = JobSpec.read(files)
    assert spec.settings.release != EARLIER
    with read_log(files.log, job=spec.job, release=spec.settings.release) as found:
        assert found is not None
        assert found[0].owner.lease > 7, "that of the earlier controller is outdated"
    cli("holds", "release", "run")
    report = trained(kept)
    assert (report["is_caught_up"], report["training"]["exact"]) == (True, True)
    assert report["training"]["events_in_range"] == (HOURS + 1) * ROWS
    newest = read_newest(kept / "run", on_skip=refuse)
    assert newest is not None
    assert newest.document["position"]["epochs_done"] == HOURS + 1
    before = PlanLog.read(kept / "run")
    land(kept, HOURS + 1)
    given: tuple[object, ...] = (
        "ctr",
        "--home",
        "home",
        "--run-dir",
        "run",
        "--hosts",
        2,
        "--readers",
        1,
        "--plan",
        "auto",
    )
    given += ("--config", '{"statistics_share": 1.0}')
    report = trained(kept, *given)
    assert (report["exact"], report["events_in_range"]) == (True, (HOURS + 2) * ROWS)
    after = PlanLog.read(kept / "run")
    assert [(one.plan, one.reason, one.commit) for one in after.changes] == [("", "statistics", 0)]
    assert after.looked_at == HOURS + 2
    assert json.loads((kept / "run" / "plans.json").read_bytes())["counted_step"] > (before.counted_step or 0)
