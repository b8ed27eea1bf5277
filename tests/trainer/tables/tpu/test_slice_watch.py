"""Machines of a slice that end, or are started again."""

from __future__ import annotations

import threading
from itertools import count

import grpc
import pytest

from tests.support.processes import PATIENCE_SECS
from trainer.errors import ConfigError, SliceLost
from trainer.tables.tpu.slice_servers import slice_servers
from trainer.tables.tpu.slice_watch import SliceWatch, look_at, wait_for_servers, watch_slice


class Machines:
    """Servers whose answers a test sets; None is no answer."""

    def __init__(self, **answers: bytes | None) -> None:
        self.answers, self.now_secs = answers, 0.0

    def look(self, server: str) -> bytes:
        answer = self.answers[server]
        if answer is None:
            raise grpc.RpcError
        return answer

    def clock(self) -> float:
        return self.now_secs

    def watch(self) -> SliceWatch:
        return SliceWatch(dict(self.answers), self.look, self.clock, silence_secs=30.0)


def test_a_machine_is_lost_when_it_is_silent_for_long():
    machines = Machines(a=b"1", b=b"2")
    watch = machines.watch()
    machines.now_secs = 1000.0
    assert watch.find_lost() is None, "all answer"
    machines.answers["b"] = None
    machines.now_secs += 29.0
    assert watch.find_lost() is None, "it may answer again"
    machines.answers["b"] = b"2"
    assert watch.find_lost() is None
    machines.answers["b"] = None
    machines.now_secs += 30.0
    found = watch.find_lost()
    assert isinstance(found, SliceLost)
    assert (found.where, found.value) == ("the TensorFlow server at b", "no answer for 30 s")
    assert "goes on from the last checkpoint" in found.next_step


def test_a_machine_is_lost_at_once_when_another_process_answers_for_it():
    machines = Machines(a=b"1", b=b"2")
    watch = machines.watch()
    machines.answers["a"] = b"3"
    assert watch.find_lost().value == "another process"


def test_servers_are_waited_for_until_they_start(caplog):
    machines, waits = Machines(a=b"1", b=None), []

    def sleep(secs):
        waits.append(secs)
        machines.now_secs += secs
        if len(waits) == 3:
            machines.answers["b"] = b"2"

    how = {"look": machines.look, "clock": machines.clock, "sleep": sleep}
    assert wait_for_servers(["a", "b"], patience_secs=60.0, **how) == {"a": b"1", "b": b"2"}
    assert len(waits) == 3
    assert [one.getMessage() for one in caplog.records] == ["waiting for the TensorFlow server at b, for up to 60 s"]
    machines.answers["b"] = None
    waits[:] = [0.0] * 9
    with pytest.raises(SliceLost, match="each machine of a TPU slice must answer") as caught:
        wait_for_servers(["a", "b"], patience_secs=60.0, **how)
    assert caught.value.value == "no answer for 60 s"


def test_what_is_lost_is_said_once_in_another_thread():
    machines, said, numbers = Machines(a=b"1"), [], count()
    done = threading.Event()

    def look(server):
        return b"1" if next(numbers) < 1 else b"2"

    def on_lost(lost):
        said.append((lost.value, threading.current_thread() is threading.main_thread()))
        done.set()

    watch_slice(SliceWatch(dict(machines.answers), look), on_lost, grace_secs=0.0)
    assert done.wait(PATIENCE_SECS)
    assert said == [("another process", False)]


def test_no_answer_of_a_port_without_a_server():
    with pytest.raises(grpc.RpcError):
        look_at("127.0.0.1:1")


def test_servers_are_named_by_their_addresses():
    assert slice_servers("local") == slice_servers("my-tpu") == ()
    assert slice_servers("grpc://10.0.0.1:7416, b.c:1") == ("10.0.0.1:7416", "b.c:1")
    for name, what in {
        "a:1,b": "by its address",
        "a:": "by its address",
        ":7": "by its address",
        "a:0": "by its address",
        "a:65536": "by its address",
        "a:٣": "by its address",
        "a:1,,b:2": "by its address",
        "a:1,a:1": "an address each",
    }.items():
        with pytest.raises(ConfigError, match=what) as caught:
            slice_servers(name)
        assert caught.value.where == "--tpu"
