"""A fleet with its store and real, small processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.launch import fleet_program
from tests.trainer.job.launch.fleet_program import submission
from trainer.job.launch.fleet import Fleet
from trainer.job.launch.fleet_store import FleetStore
from trainer.job.launch.job_processes import LocalProcesses
from trainer.scheduling.fleet import FleetEvent, FleetState, move
from transforms.errors import Busy, DataError, InputError, NotFound

S = FleetState


class Scene:
    """A fleet in a folder."""

    def __init__(self, folder, slots: int, grace_secs: float = 20.0) -> None:
        self.now, self.is_held = time.time(), True
        self.store = FleetStore(folder)
        self.processes = LocalProcesses(self.store, fleet_program.command, grace_secs=grace_secs)
        self.states: list[tuple[str, str]] = []
        self.fleet = Fleet(self.store, self.processes, slots, is_held=lambda stored: self.is_held, clock=lambda: self.now,
                           on_change=lambda one: self.states.append((one.job.name, str(one.job.state))))  # fmt: skip

    def submit(self, name: str, kind: str, **options):
        return self.store.submit(submission(name, kind, **options)).job.number

    def state(self, number: int) -> FleetState:
        return self.store.find(str(number)).job.state

    def until(self, **states: FleetState) -> None:
        """Step until the jobs of these names have these states."""
        limit = time.monotonic() + PATIENCE_SECS
        while {name: self.store.find(name).job.state for name in states} != states:
            assert time.monotonic() < limit, [(one.job.name, one.job.state) for one in self.store.jobs()]
            self.fleet.step()
            time.sleep(0.02)

    def output(self, number: int) -> str:
        return self.store.log_path(number).read_text()

    def until_output(self, number: int, text: str) -> None:
        limit = time.monotonic() + PATIENCE_SECS
        while not self.store.log_path(number).exists() or text not in self.output(number):
            assert time.monotonic() < limit
            time.sleep(0.02)


@pytest.fixture
def scene(tmp_path):
    found = Scene(tmp_path / "fleet", 2)
    yield found
    found.processes.close()


@pytest.mark.medium
def test_jobs_run_in_order_and_a_held_one_frees_its_slots(scene):
    scene.submit("first", "held", slots=2)
    second = scene.submit("second", "done", slots=2)
    scene.submit("third", "wrong", slots=2)
    scene.until(first=S.HELD, second=S.DONE, third=S.FAILED)
    order = [pair for pair in scene.states if pair[1] == "RUNNING"]
    assert order == [("first", "RUNNING"), ("second", "RUNNING"), ("third", "RUNNING")]
    assert scene.store.find("first").job.reason == "status 7: error: this job is held"
    assert scene.store.find("third").job.reason == "status 2: error: this job is wrong"
    assert "done runs" in scene.output(second)
    assert scene.fleet.is_idle(scene.store.jobs())
    scene.is_held = False
    scene.fleet.step()
    assert ("first", "QUEUED") in scene.states, "its hold was released"
    assert not scene.fleet.is_idle(scene.store.jobs())


def test_a_higher_priority_preempts_with_a_notice(scene):
    low = scene.submit("low", "lasting")
    scene.submit("other", "lasting", priority=3)
    scene.until(low=S.RUNNING, other=S.RUNNING)
    scene.until_output(low, "runs as")
    scene.submit("high", "done", priority=5)
    scene.until(high=S.DONE, low=S.RUNNING)
    changes = [pair for pair in scene.states if pair[0] != "other"]
    assert changes == [("low", "RUNNING"), ("low", "LEAVING"), ("low", "QUEUED"), ("high", "RUNNING"), ("high", "DONE"), ("low", "RUNNING")]  # fmt: skip
    assert scene.store.find("low").job.starts == 2


def test_a_person_stops_a_job(scene):
    scene.submit("run", "lasting")
    scene.submit("queued", "done", slots=2)
    scene.until(run=S.RUNNING)
    scene.until_output(1, "runs as")
    for name in ("run", "queued"):
        scene.store.update(scene.store.find(name).job.number, lambda one: move(one, FleetEvent.STOP))
    assert scene.state(1) is S.STOPPING
    scene.until(run=S.STOPPED, queued=S.STOPPED)


def test_a_process_that_does_not_leave_is_killed(tmp_path):
    scene = Scene(tmp_path, 1, grace_secs=0.2)
    number = scene.submit("stubborn", "stubborn")
    scene.until(stubborn=S.RUNNING)
    scene.until_output(number, "runs as")
    scene.fleet.leave()
    limit = time.monotonic() + PATIENCE_SECS
    while not scene.fleet.leave():
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert scene.state(number) is S.QUEUED
    scene.processes.close()


def test_a_failure_that_may_pass_is_tried_again_later(scene):
    scene.submit("away", "away")
    scene.until(away=S.QUEUED)
    scene.until(away=S.RUNNING)
    scene.until(away=S.QUEUED)
    job = scene.store.find("away").job
    assert (job.failures, job.starts) == (1, 1)
    scene.fleet.step()
    assert scene.store.find("away").job.starts == 1
    scene.now = job.not_before_secs
    scene.until(away=S.RUNNING)


def test_a_job_whose_folder_is_gone_is_not_started(scene, tmp_path):
    from dataclasses import replace

    scene.store.submit(replace(submission("lost", "done"), folder=str(tmp_path / "gone")))
    scene.until(lost=S.RUNNING)
    scene.until(lost=S.QUEUED)
    assert "not started" in scene.store.find("lost").job.reason


def start(*arguments):
    return subprocess.Popen([sys.executable, fleet_program.__file__, *map(str, arguments)], stdout=subprocess.PIPE, text=True)  # fmt: skip


def is_alive(process_id: int) -> bool:
    try:
        with open(f"/proc/{process_id}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_jobs_end_with_a_killed_runner_and_are_queued_again(tmp_path):
    store = FleetStore(tmp_path)
    store.submit(submission("one", "lasting"))
    runner = start("run", tmp_path, 1)
    scene = Scene(tmp_path, 1)
    scene.until_output(1, "runs as")
    with pytest.raises(Busy, match="already runs this fleet"):
        fleet_program.main("run", str(tmp_path), "1")
    process_id = int(scene.output(1).split()[-1])
    assert is_alive(process_id)
    runner.kill()
    runner.wait()
    limit = time.monotonic() + PATIENCE_SECS
    while is_alive(process_id):
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert scene.state(1) is S.RUNNING, "as the killed runner left it"
    second = start("run", tmp_path, 1)
    assert second.stdout.readline().split() == ["one", "QUEUED"]
    assert second.stdout.readline().split() == ["one", "RUNNING"]
    limit = time.monotonic() + PATIENCE_SECS
    while scene.output(1).count("runs as") < 2:
        assert time.monotonic() < limit
        time.sleep(0.02)
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE_SECS) == 0
    assert second.stdout.read().split() == ["one", "LEAVING", "one", "QUEUED"]
    second.stdout.close()
    runner.stdout.close()


@pytest.mark.medium
def test_two_commands_at_once_and_a_kill_lose_no_job(tmp_path):
    writers = [start("submit", tmp_path, 40) for _ in range(3)]
    time.sleep(random.Random(1).uniform(0.3, 0.8))
    writers[0].kill()
    printed = [int(line) for one in writers for line in one.communicate(timeout=PATIENCE_SECS)[0].split()]
    assert len(printed) == len(set(printed)) >= 80
    stored = [one.job.number for one in FleetStore(tmp_path).jobs()]
    assert stored == list(range(1, len(stored) + 1))
    assert set(printed) <= set(stored)
    assert len(stored) <= len(printed) + 1, "at most the last one was not printed"


def test_submissions_are_checked(tmp_path):
    store = FleetStore(tmp_path)
    store.submit(submission("one", "done"))
    for wrong in ({"name": "one"}, {"name": "1"}, {"name": "a b"}, {"name": "n", "slots": 0}, {"name": "n", "priority": 10**9}):  # fmt: skip
        with pytest.raises(InputError):
            store.submit(submission(**{"slots": 1, "priority": 0, **wrong}))
    with pytest.raises(NotFound, match="has no such job"):
        store.find("two")
    assert [one.job.name for one in store.jobs()] == ["one"]


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_document_is_one_error(tmp_path, seed):
    store = FleetStore(tmp_path)
    store.submit(submission("one", "done"))
    path = tmp_path / "jobs" / "000001.json"
    content = bytearray(path.read_bytes())
    chance = random.Random(seed)
    if seed < 20:
        content[chance.randrange(len(content))] = chance.randrange(256)
    else:
        del content[chance.randrange(len(content)) :]
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        assert store.jobs()[0].job.number == 1
    assert os.path.exists(path)
