"""What training in one process does about servers that leave, by statuses and a clock that the test sets."""

from __future__ import annotations

from contextlib import nullcontext

from trainer.servers.drain import DrainState
from trainer.servers.leaving_servers import LeavingServers
from trainer.servers.run_servers import RunServers
from trainer.servers.server_watch import WatchedServer
from trainer.wire.flight.addresses import Address

ADDRESSES = tuple(Address("ps", 7000 + k) for k in range(3))


class Scene:
    """Servers whose statuses are given. While training waits, the steps of ``later`` are made, one a look."""

    def __init__(self, least: int = 0) -> None:
        self.now, self.said, self.waited, self.later, self.let, self.notices = 0.0, [], [], [], [], ()
        self.states = {one: (DrainState(k + 1), True) for k, one in enumerate(ADDRESSES)}
        self.run = RunServers(ADDRESSES)
        self.leaving = LeavingServers(
            lambda: self.run, self.take, least=least, tell=self.said.append, waiting=lambda: nullcontext(self.waited.append),
            watch=lambda servers: self, clock=lambda: self.now, sleep=self.sleep,
        )  # fmt: skip

    @property
    def servers(self):
        return tuple(WatchedServer(one, *self.states[one]) for one in self.run.addresses if one in self.states)

    def let_go(self, address, process) -> None:
        assert process == self.states[address][0].process or not self.states[address][0].is_draining
        self.let.append(address)

    def close(self) -> None:
        self.let.clear()

    def take(self):
        found, self.notices = self.notices, ()
        return found

    def sleep(self, secs: float) -> None:
        self.now += 5
        self.later.pop(0)()

    def drain(self, k: int) -> None:
        self.states[ADDRESSES[k]] = DrainState(k + 1, True, 20.0, "SIGTERM"), True

    def end(self, k: int) -> None:
        self.states[ADDRESSES[k]] = self.states[ADDRESSES[k]][0], False

    def start(self, k: int) -> None:
        self.states[ADDRESSES[k]] = DrainState(k + 100), True


def test_training_goes_on_while_no_server_leaves():
    scene = Scene()
    scene.leaving.settle()
    assert not scene.leaving.must_end_early()
    assert (scene.said, scene.waited, scene.let) == ([], [], [])


def test_training_ends_early_lets_the_server_go_and_waits_until_it_is_back():
    scene = Scene()
    scene.drain(1)
    assert scene.leaving.must_end_early()
    assert scene.let == [], "its rows are needed for the checkpoint"
    scene.later = [lambda: scene.end(1), lambda: None, lambda: scene.start(1)]
    scene.leaving.settle()
    assert set(scene.let) == {ADDRESSES[1]}
    assert scene.waited == [f"waiting for server s1 (ps:7001) for {secs} s" for secs in (0, 5, 10)]
    assert scene.said == ["server s1 (ps:7001) leaves after SIGTERM: the epoch ends early, and is committed first",
                          "server s1 (ps:7001) is back after 15 s"]  # fmt: skip
    assert not scene.leaving.must_end_early()
    assert scene.leaving.unused == ()


def test_a_server_that_is_gone_when_training_starts_is_waited_for():
    scene = Scene()
    scene.drain(0)
    scene.end(0)
    scene.later = [lambda: scene.start(0)]
    scene.leaving.settle()
    assert len(scene.waited) == 1


def test_a_crashed_server_is_not_waited_for():
    scene = Scene()
    scene.end(0)
    scene.leaving.settle()
    scene.start(0)
    assert not scene.leaving.must_end_early()


def test_both_servers_are_waited_for():
    scene = Scene()
    scene.drain(0)
    scene.drain(2)
    scene.later = [lambda: scene.start(2), lambda: scene.start(0)]
    scene.leaving.settle()
    assert scene.waited[0] == "waiting for server s0 (ps:7000), server s2 (ps:7002) for 0 s"


def test_training_goes_on_with_the_least_number_and_takes_the_server_back_after_a_checkpoint():
    scene = Scene(least=2)
    scene.drain(1)
    assert scene.leaving.must_end_early()
    scene.leaving.settle()
    assert scene.leaving.unused == ("s1",)
    assert not scene.leaving.must_end_early(), "the next epoch is trained without it"
    assert not scene.leaving.is_any_back()
    scene.end(1)
    assert not scene.leaving.is_any_back()
    scene.start(1)
    assert scene.leaving.is_any_back()
    assert not scene.leaving.must_end_early()
    scene.leaving.settle()
    assert scene.leaving.unused == ()
    assert scene.waited == []


def test_fewer_than_the_least_number_are_waited_for():
    scene = Scene(least=2)
    scene.drain(0)
    scene.drain(1)
    scene.later = [lambda: scene.start(1)]
    scene.leaving.settle()
    assert scene.leaving.unused == ("s0",)
    scene.drain(2)
    assert scene.leaving.must_end_early(), "a further one that is used"


def test_a_notice_of_a_person_lets_a_healthy_server_go():
    scene = Scene()
    scene.notices, scene.now = ("s2",), 1.0
    assert scene.leaving.must_end_early()
    assert scene.said == [
        "server s2 (ps:7002) leaves after a preemption notice: the epoch ends early, and is committed first"
    ]
    scene.later = [lambda: scene.end(2), lambda: scene.start(2)]
    scene.leaving.settle()
    assert set(scene.let) == {ADDRESSES[2]}
    assert len(scene.waited) == 2, "it answers until it ends, and is the same process"


def test_servers_to_which_tables_were_moved_are_watched_instead():
    scene = Scene(least=1)
    scene.drain(1)
    scene.leaving.settle()
    assert scene.leaving.unused == ("s1",)
    scene.run = RunServers(ADDRESSES[:1])
    assert not scene.leaving.must_end_early()
    assert scene.leaving.unused == ()
