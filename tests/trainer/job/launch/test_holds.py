"""Holds: found in the log, and released by a controller or without one."""

from __future__ import annotations

import json
import os

import pytest

from headrace.cli.main import run
from tests.trainer.job.control.controller_process import job_settings
from tests.trainer.job.control.serving import serving
from tests.trainer.job.launch.held_jobs import REASON, hold, make_run
from trainer.errors import IllegalEvent
from trainer.job.control.job_files import ControllerAddress, JobFiles
from trainer.job.control.open_controller import first_job
from trainer.job.launch.holds import find_hold, release_hold
from trainer.run.progress.lock import run_lock
from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.holds import describe_error
from trainer.scheduling.job import Job, JobSettings, Member
from trainer.scheduling.orders import Commit
from trainer.scheduling.transitions import JobState
from transforms.errors import Busy, NotFound


def state_of_next_controller(run_dir) -> JobState:
    with serving(run_dir) as found:
        return found.client.status().state


def test_a_hold_is_released_without_a_controller(tmp_path):
    files = hold(tmp_path)
    assert find_hold(files).reason == REASON
    assert state_of_next_controller(tmp_path) is JobState.HELD, "a hold outlives its controller"
    assert release_hold(files).reason == REASON
    assert find_hold(files) is None
    assert state_of_next_controller(tmp_path) is JobState.STARTING


def test_a_running_controller_releases_the_hold(tmp_path):
    files = make_run(tmp_path)
    with serving(tmp_path) as found:
        found.client.plan_failed(describe_error(ValueError("the plan is wrong")))
        assert found.client.status().state is JobState.HELD
        release_hold(files)
        assert found.client.status().state is JobState.STARTING
        with pytest.raises(IllegalEvent, match="must be held"):
            release_hold(files)
    with pytest.raises(IllegalEvent, match="must be held"):
        release_hold(files)


def test_the_address_of_a_killed_controller_does_not_prevent_the_release(tmp_path):
    files = hold(tmp_path)
    files.write_address(ControllerAddress("127.0.0.1:1", os.getpid(), 7))
    release_hold(files)
    assert find_hold(files) is None
    assert state_of_next_controller(tmp_path) is JobState.STARTING


def test_nothing_is_released_while_another_process_has_the_run(tmp_path):
    files = hold(tmp_path)
    with run_lock(tmp_path), pytest.raises(Busy, match="while no process has the run"):
        release_hold(files)
    assert find_hold(files) is not None


def test_other_settings_do_not_release_a_hold(tmp_path):
    hold(tmp_path)
    with serving(tmp_path, settings=job_settings(most_restarts=3)) as found:
        assert found.client.status().hold.reason == REASON


def test_a_launch_forgets_that_the_machine_was_away():
    away = Job(JobSettings(), state=JobState.AWAY, is_all_away=True)
    assert not first_job(away, away.settings, Commit()).is_all_away
    assert first_job(away, away.settings, None).is_all_away, "a restarted controller is no launch"


def test_a_launch_waits_for_no_server_of_the_launch_before():
    """It may have other servers, or none."""
    server = Role(RoleKind.SERVER, "s1")
    away = Job(state=JobState.AWAY, away=frozenset({server}), members={server: Member(3, 0.0)}, notices={server: 9.0})
    launched = first_job(away, away.settings, Commit())
    assert (launched.away, launched.members, launched.notices) == (frozenset(), {}, {})
    assert first_job(away, away.settings, None) == away


def test_a_folder_without_a_job_is_one_error(tmp_path):
    with pytest.raises(NotFound, match="has no job"):
        release_hold(JobFiles(tmp_path))


def test_the_commands(tmp_path, capsys):
    home = tmp_path / "home"
    hold(home / "runs" / "ctr-v1")
    make_run(home / "runs" / "ctr-v2")
    (home / "runs" / "other-v1").mkdir()
    damaged = hold(home / "runs" / "damaged-v1")
    damaged.log.write_bytes(b"no log of ours\n")

    def headrace(*arguments):
        status = run(["holds", *map(str, arguments)])
        return status, capsys.readouterr()

    status, printed = headrace("ls", "--home", home, "--json")
    rows = json.loads(printed.out)["holds"]
    assert status == 0
    assert [(row["run"].rpartition("/")[2], row["error_class"]) for row in rows] == [
        ("ctr-v1", "permanent"),
        ("damaged-v1", ""),
    ]
    assert rows[0]["reason"] == REASON
    assert REASON in headrace("ls", "--home", home)[1].out
    assert headrace("ls", damaged.root)[0] == 3
    status, printed = headrace("release", "ctr", "--version", 1, "--home", home)
    assert (status, "released" in printed.out) == (0, True)
    status, printed = headrace("release", "ctr", "--version", 1, "--home", home)
    assert (status, printed.err.count("error:")) == (2, 1)
    assert "a job must be held to be released" in printed.err
    assert headrace("ls", home / "runs" / "ctr-v1")[1].out.strip() == "no job is held"


def test_the_status_says_that_a_job_leaves_until_its_next_launch(tmp_path):
    make_run(tmp_path)
    with serving(tmp_path) as found:
        assert not found.client.status().is_leaving
        found.client.notice(30.0)
        assert found.client.status().is_leaving
    with serving(tmp_path) as found:
        assert found.client.status().is_leaving, "a restarted controller starts no process"
    with serving(tmp_path, newest=Commit()) as found:
        assert not found.client.status().is_leaving
