"""Child processes: their ends, what they leave, and kills from outside."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import transforms.expressions.expression as hr
from pipelines.errors import ChildrenLost
from pipelines.fragments.progress_cell import Phase, Position
from pipelines.fragments.run import PlanCache, memoize_fragment
from pipelines.fragments.work import FragmentResult, FragmentWork
from pipelines.isolation.answer import Answer
from pipelines.isolation.memoizing import KnownCulprits
from pipelines.isolation.processes import ChildProcesses, ProcessEnd, child_processes
from pipelines.isolation.server import UNKNOWN_STATUS
from tests.pipelines.isolation.scenes import (
    LIMITS,
    descendants,
    eventually,
    healthy,
    is_running,
    isolated,
    leased,
    made,
    open_files,
)
from tests.pipelines.scenes import REPOSITORY
from transforms.functions import op
from warehouse.storage.storage import Storage

NOTHING = {"do": "nothing that there is"}


def pid_of(processes: ChildProcesses) -> int:
    with processes.child(LIMITS) as child:
        return child.pid


@pytest.mark.medium
def test_a_child_is_kept_for_the_next_request(own_processes: ChildProcesses) -> None:
    with own_processes.child(LIMITS) as first:
        assert first.is_new
        assert isinstance(first.ask(NOTHING, "{}", LIMITS), Answer)
    with own_processes.child(LIMITS) as again, own_processes.child(LIMITS) as other:
        assert again.pid == first.pid
        assert not again.is_new
        assert other.pid != first.pid
    with own_processes.child(LIMITS, fresh=True) as fresh:
        assert fresh.is_new
    assert own_processes.started == 3


@pytest.mark.slow
def test_a_child_outlives_a_timeout_that_its_parent_has_for_all_sockets(
    own_processes: ChildProcesses, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(partial(socket.setdefaulttimeout, socket.getdefaulttimeout()))
    socket.setdefaulttimeout(60)  # as Beam's clients of Google do
    with own_processes.child(LIMITS) as first:
        first.ask(NOTHING, "{}", LIMITS)
    time.sleep(0.2)
    with own_processes.child(LIMITS) as again:
        assert again.pid == first.pid
        assert isinstance(again.ask(NOTHING, "{}", LIMITS), Answer)


@pytest.mark.slow
def test_fresh_children_do_not_pile_up(own_processes: ChildProcesses) -> None:
    started = []
    for _ in range(4):
        with own_processes.child(LIMITS, fresh=True) as child:
            started.append(child.pid)
            assert isinstance(child.ask(NOTHING, "{}", LIMITS), Answer)
    assert own_processes.running[1:] == (started[-1],), "no more wait than ever worked at once"
    assert eventually(lambda: not any(is_running(pid) for pid in started[:-1]))
    assert pid_of(own_processes) == started[-1]


@pytest.mark.slow
def test_a_late_answer_does_not_count_for_the_next_request(own_processes: ChildProcesses) -> None:
    with own_processes.child(LIMITS) as child:
        (server, *_) = own_processes.running
        child._server._control.settimeout(0.1)
        os.kill(server, signal.SIGSTOP)
        assert child.close() == UNKNOWN_STATUS, "nobody answers"
        os.kill(server, signal.SIGCONT)
    with own_processes.child(LIMITS) as other:
        assert isinstance(other.ask(NOTHING, "{}", LIMITS), Answer)
        assert is_running(other.pid)
    assert server not in own_processes.running


@pytest.mark.slow
def test_a_child_that_was_killed_while_it_waited_is_not_handed_out(own_processes: ChildProcesses) -> None:
    pid = pid_of(own_processes)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not is_running(pid))
    with own_processes.child(LIMITS) as child:
        assert child.pid != pid
        assert isinstance(child.ask(NOTHING, "{}", LIMITS), Answer)


@pytest.mark.slow
def test_how_a_child_ended_is_known(own_processes: ChildProcesses) -> None:
    for number, said in ((signal.SIGKILL, "its process was ended by SIGKILL"), (signal.SIGBUS, "ended by SIGBUS")):
        with own_processes.child(LIMITS, fresh=True) as child:
            os.kill(child.pid, signal.SIGSTOP)
            timer = threading.Timer(0.2, os.kill, (child.pid, number))
            timer.start()
            threading.Timer(0.3, os.kill, (child.pid, signal.SIGCONT)).start() if number != signal.SIGKILL else None
            ended = child.ask(NOTHING, "{}", LIMITS)
        assert isinstance(ended, ProcessEnd)
        assert (ended.kind, ended.status, ended.position) == ("lost", -number, Position(Phase.IDLE))
        assert said in ended.description


@pytest.mark.slow
def test_children_leave_nothing_behind(own_processes: ChildProcesses) -> None:
    pid_of(own_processes)
    server = own_processes.running[0]
    before = open_files(), open_files(server)
    for _ in range(20):
        with own_processes.child(LIMITS, fresh=True) as child:
            os.kill(child.pid, signal.SIGKILL)
            assert isinstance(child.ask(NOTHING, "{}", LIMITS), ProcessEnd)
    assert eventually(lambda: (open_files(), open_files(server)) == before)
    assert eventually(lambda: len(descendants(server)) == 1), "the one that waits; no zombies"


@pytest.mark.slow
def test_a_child_holds_no_file_but_its_own(own_processes: ChildProcesses) -> None:
    with own_processes.child(LIMITS) as one, own_processes.child(LIMITS) as other:
        for child in (one, other):
            child.ask(NOTHING, "{}", LIMITS)  # it has begun to work
        held = [set(os.listdir(f"/proc/{child.pid}/fd")) for child in (one, other)]
        links = [os.readlink(f"/proc/{child.pid}/fd/{fd}") for child, fds in zip((one, other), held, strict=True)
                 for fd in fds if int(fd) > 2]  # fmt: skip
    sockets = [link for link in links if link.startswith("socket:")]
    assert len(set(sockets)) == 2, "each its own end of a connection"
    assert sorted(links) == sorted([*sockets, *["/memfd:headrace-progress (deleted)"] * 2])


@pytest.mark.slow
def test_a_large_child_is_let_go(own_processes: ChildProcesses) -> None:
    pid = pid_of(own_processes)
    tight = replace(LIMITS)
    object.__setattr__(tight, "memory_bytes", 2**20)  # less than anybody may ask for: it holds more already

    def is_let_go() -> bool:
        with own_processes.child(tight):  # it is weighed now and then
            pass
        return not is_running(pid)

    assert eventually(is_let_go)


@pytest.mark.slow
def test_children_end_with_the_server_and_another_is_started(own_processes: ChildProcesses) -> None:
    child = pid_of(own_processes)
    server = own_processes.running[0]
    os.kill(server, signal.SIGKILL)
    assert eventually(lambda: not is_running(child))
    assert pid_of(own_processes) not in (child, 0)
    assert own_processes.running[0] != server


def test_a_server_that_cannot_start_is_one_error(
    own_processes: ChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ChildrenLost, match="cannot be started"), own_processes.child(LIMITS):
        pass
    assert own_processes.running == ()


def test_a_system_that_refuses_processes_is_one_error(
    own_processes: ChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ChildrenLost, match="refuses to start a child process"):
        own_processes.prepare()


@pytest.mark.slow
def test_a_defect_in_a_child_is_an_answer(own_processes: ChildProcesses) -> None:
    with own_processes.child(LIMITS) as child:
        answer = child.ask(NOTHING, "{}", LIMITS)
        assert isinstance(answer, Answer)
        assert answer.document["defect"]["error"].startswith("KeyError")
        assert "Traceback" in answer.document["defect"]["traceback"]
        assert isinstance(child.ask(NOTHING, "{}", LIMITS), Answer), "it goes on"


def test_a_fork_of_this_process_has_children_of_its_own() -> None:
    ours = child_processes()
    assert child_processes() is ours
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(write, b"other" if child_processes() is not ours else b"same")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 10) == b"other"
    os.close(read)
    os.close(write)


PARENT = """
import sys, threading, time
from pathlib import Path
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.memoizing import KnownCulprits, memoize_isolated
from pipelines.isolation.processes import child_processes
from tests.pipelines.isolation import scenes
import transforms.expressions.expression as hr
home, (work,) = scenes.leased(Path(sys.argv[1]), scenes.made({"bad": getattr(scenes, sys.argv[2])(hr.text("mood"))}))
with child_processes().child(scenes.LIMITS):
    pass  # one that waits, beside the one that works
limits = IsolationLimits(stall_secs=3600.0).on_this_machine(1)
run = lambda: memoize_isolated(work.to_json(), home, child_processes(), limits, KnownCulprits())
threading.Thread(target=run).start()
time.sleep(3600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stuck", ["loops", "backtracks"])
def test_no_child_survives_its_parent(tmp_path: Path, stuck: str) -> None:
    """The children are busy, in Python and in C, and nothing but the kernel can tell them."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), stuck], env=environment)
    below: set[int] = set()
    try:
        assert eventually(lambda: any(_secs_on_processor(pid) > 1.0 for pid in _children_of_the_server(parent.pid)))
        below = descendants(parent.pid)
        parent.kill()
        parent.wait()
        assert eventually(lambda: not any(is_running(pid) for pid in below))
    finally:
        parent.kill()
        parent.wait()
        for pid in filter(is_running, below):
            os.kill(pid, signal.SIGKILL)


def _children_of_the_server(pid: int) -> set[int]:
    return {below for server in descendants(pid) for below in descendants(server)}


def _secs_on_processor(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@op(result="string")
def takes_its_time(text):
    for _ in range(3_000_000):
        pass
    return text


@pytest.fixture(scope="module")
def slow_works(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[FragmentWork], list[FragmentResult]]:
    """Some fragments that take a moment each, and what becomes of them in this process."""
    folder = tmp_path_factory.mktemp("slow")
    home, works = leased(folder, made({**healthy(), "slow": takes_its_time(hr.text("mood"))}), hours=8)
    plans = PlanCache()
    return home, works, [memoize_fragment(Storage(home), work, plans) for work in works]


def sums(results: list[FragmentResult]) -> list[list[tuple[str, str, bool]]]:
    return [[(one.column, one.checksum, one.failure is None) for one in result.outcomes] for result in results]


class Killer:
    """Kills one of the children that work, at random moments, so often and no more."""

    def __init__(self, processes: ChildProcesses, kills: int, seed: int) -> None:
        self._processes, self._kills, self._random = processes, kills, random.Random(seed)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.killed = 0

    def _run(self) -> None:
        while self.killed < self._kills and not self._done.wait(self._random.uniform(0.05, 0.4)):
            for server in self._processes.running[:1]:
                busy = sorted(descendants(server) - set(self._processes.running))
                if busy:
                    os.kill(self._random.choice(busy), signal.SIGKILL)
                    self.killed += 1

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_from_outside_change_no_memo(
    own_processes: ChildProcesses,
    slow_works: tuple[str, list[FragmentWork], list[FragmentResult]],
    seed: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    home, works, expected = slow_works
    content = {file.path: (Path(home) / file.path).read_bytes() for result in expected for file in result.files}
    # Two kills in a row may split a fragment's file; four cannot make a culprit, which takes five.
    with Killer(own_processes, 4, seed) as killer, ThreadPoolExecutor(2) as threads:
        results = list(threads.map(
            lambda work: isolated(work, home, own_processes, LIMITS, KnownCulprits()), works
        ))  # fmt: skip
    assert killer.killed > 0, "nobody was killed"
    told = [record.message for record in caplog.records if "no component is a culprit" in record.message]
    assert any("its process was ended by SIGKILL" in message for message in told)
    assert sums(results) == sums(expected)
    whole = {file.path for result in results for file in result.files if len(result.files) == 1}
    assert whole, "most are not split"
    assert {path: (Path(home) / path).read_bytes() for path in whole} == {path: content[path] for path in whole}
