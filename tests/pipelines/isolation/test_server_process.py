"""The server of children as a fork of a process that just began, and as a new interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.isolation.scenes import descendants, eventually, healthy, is_running, leased, made
from tests.pipelines.scenes import REPOSITORY
from tests.support.processes import PATIENCE_SECS
from warehouse import Warehouse, WarehouseConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the server is always a new interpreter")

#: A process with a server. Nothing heavy is imported before.
PARENT = """
import os, signal, sys, threading, time
from pathlib import Path
from pipelines.isolation.processes import ChildProcesses

def command(pid): return Path(f"/proc/{pid}/cmdline").read_bytes()
def parent(pid): return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
def threads(pid): return len(os.listdir(f"/proc/{pid}/task"))

%s
processes = ChildProcesses(4)
processes.prepare_at_start()
(server,) = processes.running
shares = command(server) == command(os.getpid())

from pipelines.isolation.answer import Answer
from pipelines.isolation.limits import IsolationLimits
limits = IsolationLimits(stall_secs=60.0).on_this_machine(1)

def answers(child): return isinstance(child.ask({"do": "nothing that there is"}, "{}", limits), Answer)

%s
processes.close()
"""


def run(after: str, before: str = "", status: int = 0) -> str:
    """What the program prints, after its children answered."""
    done = subprocess.run([sys.executable, "-c", PARENT % (before, after)], cwd=REPOSITORY, capture_output=True, text=True,
                          check=False, timeout=PATIENCE_SECS)  # fmt: skip
    assert (done.returncode, done.stderr) == (status, "")
    return done.stdout


@pytest.mark.slow
def test_children_are_forks_of_one_process_that_has_imported_everything_once() -> None:
    program = """
assert shares and parent(server) == os.getpid()
assert {"numpy", "pyarrow.compute", "transforms.operators.web"} <= set(sys.modules), "the worker needs them too"
assert not {"numba", "pandas", "sqlalchemy"} & set(sys.modules)
assert threads(server) == 1, "a thread could hold a lock when a child is forked"
with processes.child(limits) as first, processes.child(limits) as second:
    assert {parent(first.pid), parent(second.pid)} == {server} and first.pid != second.pid
    assert threads(server) == threads(first.pid) == 1
    assert answers(first) and answers(second)
"""
    run(program)


@pytest.mark.slow
def test_a_process_with_another_thread_starts_an_interpreter() -> None:
    before = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    run(
        "assert not shares and 'numpy' not in sys.modules\nwith processes.child(limits) as child: assert answers(child)",
        before,
    )


@pytest.mark.medium
def test_a_child_that_was_killed_is_replaced_by_a_fork_of_the_same_server() -> None:
    program = """
with processes.child(limits) as child:
    killed = child.pid
    os.kill(killed, signal.SIGKILL)
    assert not answers(child)
with processes.child(limits) as child:
    assert child.pid != killed and parent(child.pid) == server and answers(child)
"""
    run(program)


@pytest.mark.slow
def test_a_server_that_was_killed_is_replaced_by_an_interpreter() -> None:
    """By then the worker has threads and connections."""
    program = """
os.kill(server, signal.SIGKILL)
while Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
    time.sleep(0.01)
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
with processes.child(limits) as child:
    assert parent(child.pid) != server and answers(child)
assert not Path(f"/proc/{server}").exists(), "the killed server must be waited for"
"""
    run(program)


@pytest.mark.slow
def test_a_server_holds_no_file_of_its_parent_and_writes_nothing_of_its() -> None:
    before = "held = open('pyproject.toml'); sys.stdout.write('once ')"
    program = """
held_by = lambda pid: {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
with processes.child(limits) as child:
    assert not any("pyproject" in name for pid in (server, child.pid) for name in held_by(pid))
    assert os.readlink(f"/proc/{child.pid}/fd/1") == os.readlink(f"/proc/{server}/fd/1") == os.readlink("/proc/self/fd/2")
    assert os.readlink(f"/proc/{server}/fd/0") == os.devnull
assert os.getsid(server) != os.getsid(0), "Ctrl-C is for the parent"
"""
    assert run(program, before) == "once "


@pytest.mark.slow
@pytest.mark.parametrize("before", ["os.close(0); os.close(1)", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"])
def test_a_parent_may_have_no_standard_files_and_ignore_the_ends_of_processes(before: str) -> None:
    run("assert shares\nwith processes.child(limits) as child: assert answers(child)", before)


def test_a_server_ends_when_it_is_closed() -> None:
    assert run("processes.close()\nassert not Path(f'/proc/{server}').exists()\nprint('closed')") == "closed\n"


@pytest.mark.slow
def test_kernels_and_pandas_are_imported_once_for_all_children_and_not_before_work_is_expected() -> None:
    """A worker without a task needs neither. Arrow would import pandas in each child."""
    program = """
maps = lambda pid: Path(f"/proc/{pid}/maps").read_text()
loaded = lambda pid: "pandas/_libs" in maps(pid) and "llvmlite" in maps(pid)
assert "llvmlite" not in maps(server) and "pandas/_libs" not in maps(server)
processes.expect_work()
while not loaded(server):
    time.sleep(0.01)
with processes.child(limits) as child:
    assert loaded(child.pid)
assert "pandas" not in sys.modules
"""
    pytest.importorskip("pandas")
    run(program)


def test_no_process_survives_a_parent_that_was_killed() -> None:
    program = """
with processes.child(limits) as first, processes.child(limits) as second:
    assert shares and answers(first)
    print(server, first.pid, second.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    below = [int(pid) for pid in run(program, status=-signal.SIGKILL).split()]
    assert len(below) == 3
    assert eventually(lambda: not any(is_running(pid) for pid in below))


NEW_MODULES = """
import sys
from pipelines.isolation.server import import_child
import_child()
from pipelines.fragments.run import PlanCache, memoize_fragment
from pipelines.fragments.work import FragmentWork
from warehouse.storage.storage import Storage
before = set(sys.modules)
result = memoize_fragment(Storage(sys.argv[1]), FragmentWork.from_json(sys.stdin.read()), PlanCache())
assert not any(outcome.failure for outcome in result.outcomes)
print(*sorted(set(sys.modules) - before))
"""


@pytest.mark.medium
def test_a_child_imports_nothing_for_a_fragment(tmp_path: Path) -> None:
    home, (work,) = leased(tmp_path, made(healthy()))
    done = subprocess.run([sys.executable, "-c", NEW_MODULES, home], input=work.to_json(), cwd=REPOSITORY, capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert done.stdout.split() == []


def test_a_worker_shares_its_imports_and_leaves_no_process_when_it_is_killed(tmp_path: Path) -> None:
    Warehouse.open(WarehouseConfig(str(tmp_path))).close()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "headrace", "work", "--home", str(tmp_path)]
    worker = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    below: set[int] = set()
    try:
        assert eventually(lambda: bool(descendants(worker.pid)))
        below = descendants(worker.pid)
        assert [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in below] == [
            Path(f"/proc/{worker.pid}/cmdline").read_bytes()
        ]
    finally:
        worker.kill()
        worker.wait()
    assert eventually(lambda: not any(is_running(pid) for pid in below))
    for pid in filter(is_running, below):
        os.kill(pid, signal.SIGKILL)
