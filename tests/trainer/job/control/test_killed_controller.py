"""The controller is killed; commits are neither lost nor repeated, and its roles train on."""

from __future__ import annotations

import random
import signal
import threading
import time

import pytest

from tests.support.examples import scaled
from tests.trainer.job.control.controller_process import ControllerProcesses, FolderPublisher
from tests.trainer.job.control.small_job import SmallJob
from trainer.scheduling.events import Role, RoleKind

STOPS = tuple(range(10, 100, 10))
POINTS = ("before append", "after append", "after act", "after answer", "before publish", "after publish",
          "before rename", "after rename")  # fmt: skip


@pytest.fixture(scope="module")
def controllers():
    with ControllerProcesses() as processes:
        yield processes


def run_with_crashes(tmp_path, controllers, crashes, stops=STOPS, **options) -> tuple[SmallJob, list[int]]:
    """Run a job whose controllers are killed at the given points, each at its own one, and the last one at none."""
    job = SmallJob(tmp_path, **options)
    try:
        for crash in (*crashes, None):
            controllers.start(run_dir=str(tmp_path), stops=stops, crash=crash, settings={"hosts": 2})
            status = controllers.wait()
            if status == 0:
                break
            assert status == -signal.SIGKILL
    finally:
        job.close()
    assert status == 0
    return job, job.check(stops[-1], stops)


@pytest.mark.medium
def test_a_controller_that_is_killed_at_every_point_loses_no_commit(tmp_path, controllers):
    crashes = [(point, 1 + number % 3) for number, point in enumerate(POINTS)]
    _, attempts = run_with_crashes(tmp_path, controllers, crashes)
    assert attempts == list(range(1, 10)), "the hosts trained on: no attempt was given up"


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
def test_a_controller_may_be_killed_at_one_point_again_and_again(tmp_path, controllers, point):
    _, attempts = run_with_crashes(tmp_path, controllers, [(point, count) for count in (2, 1, 4, 3)], stops=STOPS[:4])
    assert attempts == [1, 2, 3, 4]


def _kill_at_random(tmp_path, controllers, seed: int, kills: int, kill_hosts: bool) -> None:
    draw = random.Random(seed)
    job = SmallJob(tmp_path, seed=seed)
    stops = tuple(range(20, 201, 20))
    try:
        for number in range(kills + 1):
            controllers.start(run_dir=str(tmp_path), stops=stops, settings={"hosts": 2}, log_bytes=1)
            is_last = number == kills
            timer = threading.Timer(draw.uniform(0.0, 0.4), controllers.kill)
            if not is_last:
                timer.start()
            if kill_hosts and not is_last and draw.random() < 0.3:
                job.kill(Role(RoleKind.HOST, f"h{draw.randrange(2)}"))
            status = controllers.wait()
            timer.cancel()
            assert status == (0 if is_last else status)
            if status == 0:
                break
    finally:
        job.close()
    job.check(200, stops)


@pytest.mark.medium
def test_a_controller_may_be_killed_at_any_moment(tmp_path, controllers):
    for seed in range(scaled(4)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        _kill_at_random(folder, controllers, seed, kills=8, kill_hosts=bool(seed % 2))


@pytest.mark.slow
@pytest.mark.soak
def test_a_controller_may_be_killed_many_times(tmp_path, controllers):
    for seed in range(100, 115):
        folder = tmp_path / str(seed)
        folder.mkdir()
        _kill_at_random(folder, controllers, seed, kills=20, kill_hosts=bool(seed % 2))


def test_killed_hosts_are_replaced(tmp_path, controllers):
    job = SmallJob(tmp_path)
    try:
        controllers.start(run_dir=str(tmp_path), stops=STOPS, settings={"hosts": 2})
        publisher = FolderPublisher(tmp_path / "commits")
        for number in range(3):
            while len(publisher.commits()) < 1 + 2 * number:
                time.sleep(0.01)
            job.kill(Role(RoleKind.HOST, f"h{number % 2}"), restart_secs=1.0)
        assert controllers.wait() == 0
    finally:
        job.close()
    attempts = job.check(STOPS[-1], STOPS)
    assert attempts[-1] > len(STOPS), "attempts were given up"
