"""When a server that drains ends, and which clients it takes: by a clock that the test sets."""

from __future__ import annotations

import pytest

from trainer.errors import ServerLeaves
from trainer.servers.client_updates import Greeting, attempt_number
from trainer.servers.drain import Drain, DrainState
from trainer.servers.session_roles import SessionRole
from transforms.errors import DataError

CLIENT, OTHER = Greeting(attempt=attempt_number(7, 3)), Greeting(attempt=attempt_number(8, 1))


class Clock:
    def __init__(self) -> None:
        self.secs = 100.0

    def __call__(self) -> float:
        return self.secs


class Scene:
    def __init__(self, *, waits: bool = True) -> None:
        self.clock = Clock()
        self.drain = Drain(5, waits=waits, clock=self.clock)

    def greet(self, session: str, greeting: Greeting) -> None:
        self.drain.check(greeting)
        self.drain.add(session, greeting)


def test_a_server_without_clients_ends_at_once():
    scene = Scene()
    assert scene.drain.end == ""
    scene.drain.begin("SIGTERM", 25.0)
    assert scene.drain.end == "it has no clients"


def test_a_server_waits_for_its_clients_and_for_what_watches_it():
    scene = Scene()
    scene.greet("a", CLIENT)
    assert scene.drain.watch("w") == DrainState(5)
    scene.drain.begin("SIGTERM", 25.0)
    scene.clock.secs += 5
    assert scene.drain.watch("w") == DrainState(5, True, 20.0, "SIGTERM")
    scene.drain.remove("a")
    scene.clock.secs += 5
    assert scene.drain.end == "", "the training that watches it may begin its next attempt"
    scene.drain.remove("w")
    assert scene.drain.end == "it has no clients"


def test_a_client_may_connect_again_before_the_server_ends():
    scene = Scene()
    scene.greet("a", CLIENT)
    scene.drain.begin("SIGTERM", 25.0)
    scene.drain.remove("a")
    assert scene.drain.end == ""
    scene.greet("b", Greeting(attempt=attempt_number(7, 4)))
    scene.clock.secs += 5
    assert scene.drain.end == ""
    scene.drain.remove("b")
    scene.clock.secs += 0.6
    assert scene.drain.end == "it has no clients"


def test_a_process_that_takes_the_place_of_a_killed_one_drains_on_with_its_clients():
    scene = Scene()
    scene.drain.expect(7)
    scene.drain.begin("SIGTERM", 25.0, is_resumed=True)
    assert scene.drain.end == "", "its clients connect again"
    with pytest.raises(ServerLeaves):
        scene.greet("b", OTHER)
    scene.clock.secs += 5
    scene.greet("a", CLIENT)
    scene.clock.secs += 10
    assert scene.drain.end == ""
    scene.drain.remove("a")
    scene.clock.secs += 0.6
    assert scene.drain.end == "it has no clients"
    other = Scene()
    other.drain.begin("SIGTERM", 25.0, is_resumed=True)
    other.clock.secs += 10.1
    assert other.drain.end == "it has no clients", "none has come back"


def test_the_training_that_watches_a_server_lets_it_go():
    scene = Scene()
    scene.greet("a", CLIENT)
    scene.drain.watch("w")
    scene.drain.begin("SIGTERM", 25.0)
    scene.drain.release(4)
    assert scene.drain.end == "", "that was said to the process before"
    scene.drain.release(5)
    assert scene.drain.end == "its clients do not need it"


def test_a_server_that_is_asked_to_leave_drains_without_a_signal():
    scene = Scene()
    scene.greet("a", CLIENT)
    scene.drain.release(5)
    assert scene.drain.is_begun
    assert scene.drain.end == "its clients do not need it"


def test_the_time_of_a_drain_ends():
    scene = Scene()
    scene.greet("a", CLIENT)
    scene.drain.begin("SIGTERM", 25.0)
    scene.clock.secs += 10
    scene.drain.begin("SIGTERM", 25.0)
    scene.clock.secs += 14.9
    assert scene.drain.end == ""
    scene.clock.secs += 0.2
    assert scene.drain.end == "its clients have not committed in time"
    assert scene.drain.watch("w").left_secs == 0


def test_a_server_that_drains_refuses_other_trainings():
    scene = Scene()
    scene.greet("a", CLIENT)
    scene.drain.begin("SIGTERM", 25.0)
    with pytest.raises(ServerLeaves, match="must stay to take a new client") as refused:
        scene.greet("b", OTHER)
    assert refused.value.value == "it leaves after SIGTERM, in at most 25 s"
    assert refused.value.exit_status == 6
    scene.greet("w", Greeting(role=SessionRole.WATCHES))


def test_an_embedding_worker_waits_for_no_client_and_takes_none():
    scene = Scene(waits=False)
    scene.greet("a", CLIENT)
    scene.drain.begin("SIGTERM", 25.0)
    assert scene.drain.end
    with pytest.raises(ServerLeaves):
        scene.greet("b", CLIENT)


def test_an_embedding_worker_waits_while_a_training_watches_it():
    """Its clients may have no other one: then they commit first."""
    scene = Scene(waits=False)
    scene.greet("a", CLIENT)
    scene.drain.watch("w")
    scene.drain.begin("SIGTERM", 25.0)
    scene.clock.secs += 5
    assert scene.drain.end == ""
    scene.greet("b", CLIENT)
    with pytest.raises(ServerLeaves):
        scene.greet("c", OTHER)
    scene.drain.release(5)
    assert scene.drain.end == "its clients do not need it"


def test_a_killed_process_of_an_embedding_worker_waits_until_it_is_watched_again():
    scene = Scene(waits=False)
    scene.drain.begin("SIGTERM", 25.0, is_resumed=True)
    assert scene.drain.end == ""
    scene.clock.secs += 10.1
    assert scene.drain.end == "its clients do not need it"


@pytest.mark.parametrize("found", [DrainState(0), DrainState(2**53, True, 12.5, "SIGTERM")])
def test_the_state_of_a_drain_is_read_as_it_was_written(found):
    from trainer.tables.routes.servers.frames import write_document

    assert DrainState.read(write_document(found.to_document())) == found


@pytest.mark.parametrize("wrong", [{"left_secs": -1}, {"left_secs": 1e300}, {"left_secs": True}, {"left_secs": "1"}, {"process": -1},
                                   {"is_draining": 1}, {"reason": 3}, {"more": 1}])  # fmt: skip
def test_another_state_of_a_drain_is_refused(wrong):
    from trainer.tables.routes.servers.frames import write_document

    with pytest.raises(DataError):
        DrainState.read(write_document({**DrainState(1).to_document(), **wrong}))
