"""``headrace train --servers`` in one process when servers get preemption notices: the bits of training that nothing disturbed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.headrace.test_served_training import OPTIONS, assert_equal_runs, served  # noqa: F401 (a fixture)
from tests.support.drained_server import DrainedServer
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.launch.test_preempted_servers import drained_servers
from trainer.servers.server_status import read_status
from transforms.errors import HeadraceError

_LOOK_SECS = 0.02


class Acts:
    """Does its steps in a thread, one after the other, each once its condition holds."""

    def __init__(self, *steps: tuple[Callable[[], bool], Callable[[], object]]) -> None:
        self._steps, self.made, self._ends = steps, 0, threading.Event()
        self._thread = threading.Thread(target=self._act)

    def _act(self) -> None:
        for may, act in self._steps:
            while not may():
                if self._ends.wait(_LOOK_SECS):
                    return
            act()
            self.made += 1

    def __enter__(self) -> Acts:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ends.set()
        self._thread.join(PATIENCE_SECS)


def updates(server: DrainedServer) -> int:
    try:
        return read_status(server.address).updates
    except HeadraceError:
        return 0


def since_connected(server: DrainedServer, found: list[float]) -> float:
    """Since when a connection to a server has stayed, such as that of a training that watches it."""
    port = f":{server.address.port:04X} "
    lines = Path("/proc/net/tcp").read_text().splitlines()
    if any(f"{port}" in line[:22] and line.split()[3] == "01" for line in lines):
        found.append(time.monotonic())
        return found[0]
    found.clear()
    return time.monotonic()


@pytest.fixture
def scene(served, tmp_path):  # noqa: F811
    served.options.write_text(json.dumps({**OPTIONS, "passes": 100}))
    arguments = ("train", "first", "--config", served.options, "--json")
    served(*arguments, "--run-dir", tmp_path / "alone")

    def train(servers, *more: object):
        addresses = ",".join(str(one.address) for one in servers)
        found = served(*arguments, "--run-dir", tmp_path / "run", "--servers", addresses, *more)
        assert found.json["exact"] is True
        assert_equal_runs(tmp_path / "alone", tmp_path / "run")
        return found

    return train


@pytest.mark.slow
def test_training_ends_its_epoch_early_and_waits_for_the_server(scene, tmp_path):
    """By SIGTERM, then of both servers at once."""
    with drained_servers(tmp_path, 2) as servers:
        one, other = servers
        with Acts(
            (lambda: updates(other) > 20, other.terminate),
            (other.has_ended, other.start),
            (lambda: updates(other) > 20, lambda: (one.terminate(), other.terminate())),
            (lambda: one.has_ended() and other.has_ended(), lambda: (other.start(), one.start())),
        ) as acts:
            found = scene(servers)
        assert acts.made == 4
        assert other.log.count("the server ends: its clients do not need it") == 2
    assert "leaves after SIGTERM: the epoch ends early, and is committed first" in found.err
    assert "is back after" in found.err


@pytest.mark.slow
def test_a_person_gives_a_server_a_notice(scene, tmp_path):
    def preempt() -> None:
        """In a process of its own, whose output is not that of training."""
        command = [sys.executable, "-m", "headrace", "preempt", str(tmp_path / "run"), "--role"]
        assert subprocess.run([*command, "server:s9"], stdout=subprocess.DEVNULL, check=False).returncode == 4
        subprocess.run([*command, "server:s0"], stdout=subprocess.DEVNULL, check=True)

    with drained_servers(tmp_path, 2) as servers:
        left = servers[0]
        with Acts((lambda: updates(left) > 5, preempt), (left.has_ended, left.start)) as acts:
            found = scene(servers)
        assert acts.made == 2
    assert "leaves after a preemption notice" in found.err


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("--embedding-workers", 2)], ids=["no workers", "workers"])
def test_training_goes_on_without_the_server_and_takes_it_back(scene, tmp_path, workers):
    with drained_servers(tmp_path, 3) as servers:
        left = servers[1]
        begun = [0]

        def restart_later() -> None:
            begun[0] = updates(servers[0])
            time.sleep(0.2)

        with Acts(
            (lambda: updates(left) > 20, left.terminate),
            (left.has_ended, restart_later),
            (lambda: updates(servers[0]) > begun[0] + 20, left.start),
            (lambda: updates(left) > 5, lambda: None),
        ) as acts:
            scene(servers, "--least-servers", 2, *workers)
        assert acts.made == 4, "it has tables again"


@pytest.mark.slow
def test_a_server_killed_before_the_checkpoint_costs_the_epoch(scene, tmp_path):
    with drained_servers(tmp_path, 2) as servers:
        killed = servers[0]

        def kill() -> None:
            killed.terminate()
            killed.close()

        with Acts((lambda: updates(killed) > 20, kill), (killed.has_ended, killed.start)) as acts:
            scene(servers)
        assert acts.made == 2


@pytest.mark.slow
def test_a_server_that_leaves_before_training_begins_is_waited_for(scene, tmp_path):
    with drained_servers(tmp_path, 2) as servers:
        left, connected = servers[0], []
        with Acts(
            (lambda: time.monotonic() >= since_connected(left, connected) + 1, left.terminate),
            (left.has_ended, left.start),
        ) as acts:
            scene(servers)
        assert acts.made == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--least-servers", 1), "--least-servers must go with --servers"),
        (("--servers", 2, "--least-servers", 3), "--least-servers must be at most the number of servers"),
        (("--servers", 2, "--least-servers", 1, "--plan", "plan.json"), "tables with --plan must be on all servers"),
    ],
)  # fmt: skip
def test_a_least_number_of_servers_that_cannot_be_is_refused(served, options, problem):  # noqa: F811
    assert problem in served("train", "first", *options, status=2).err
