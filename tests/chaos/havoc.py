"""Fifty faults in one run: what each of them does, and how it heals."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import func, select

from tests.chaos.scene import LEASE_SECS, config_of
from tests.contracts.severing_proxy import SeveringProxy, severing
from tests.postgresql import PostgresServer, database_of
from warehouse import schema
from warehouse.task_states import MemoState
from warehouse.warehouse import Warehouse

REPOSITORY = Path(__file__).resolve().parents[2]
WORKERS = 3
#: A fault is struck when so much has got done since the last one, or after this time if nothing does.
_PATIENCE_SECS = 20.0


@dataclass
class Report:
    """What a run was like."""

    faults: Counter[str] = field(default_factory=Counter)
    workers_died: int = 0
    secs: float = 0.0
    errors: str = ""


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[bool]:
    """A file system of its own at ``folder``, so that it can be full; False where this user may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


class Havoc:
    """Strikes at the workers of one warehouse, whose catalog is reached through a proxy."""

    def __init__(self, home: Path, server: PostgresServer, database: str, proxy: SeveringProxy, clock_file: Path,
                 draw: random.Random, *, full_disks: bool) -> None:  # fmt: skip
        self._home, self._server, self._database = home, server, database
        self._proxy, self._clock_file, self._draw = proxy, clock_file, draw
        self.workers: set[int] = set()
        self.kinds: dict[str, Callable[[], None]] = {
            "worker killed": self.kill_worker,
            "child killed": self.kill_child,
            "worker paused": self.pause_worker,
            "connections lost": self.lose_connections,
            "commit cut off": self.cut_commit,
            "storage error": self.refuse_writes,
            "clock jump": self.jump_clock,
        }
        if full_disks:
            self.kinds["disk full"] = self.fill_disk

    def kill_worker(self) -> None:
        self._signal(self._worker(), signal.SIGKILL)

    def kill_child(self) -> None:
        """A process that a worker started; the worker itself where it has none just now."""
        worker = self._worker()
        self._signal(self._draw.choice(sorted(descendants(worker)) or [worker]), signal.SIGKILL)

    def pause_worker(self) -> None:
        """For longer than its lease lasts: it comes back late."""
        worker = self._worker()
        self._signal(worker, signal.SIGSTOP)
        time.sleep(LEASE_SECS * 1.5)
        self._signal(worker, signal.SIGCONT)

    def lose_connections(self) -> None:
        self._server.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self._database}'"
        )

    def cut_commit(self) -> None:
        """Whoever commits next is not told what became of it, or it never reaches the server."""
        before = self._proxy.severed
        self._proxy.sever = self._draw.choice(("before", "after"))
        _wait(lambda: self._proxy.severed > before)
        self._proxy.sever = None

    def refuse_writes(self) -> None:
        """The folder of the memos is not there, and nothing can be put in its place."""
        memos, away = self._home / "memos", self._home / "memos-away"
        memos.rename(away)
        memos.write_text("not a folder")
        time.sleep(self._draw.uniform(0.2, 1.0))
        memos.unlink()
        away.rename(memos)

    def fill_disk(self) -> None:
        filler = self._home / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(1 << 16)):
                pass
        time.sleep(self._draw.uniform(0.2, 1.0))
        filler.unlink()

    def jump_clock(self) -> None:
        """For everybody at once, and there it stays."""
        secs = self._draw.choice((-1, 1)) * self._draw.uniform(2, 40) * LEASE_SECS
        new = self._clock_file.with_suffix(".new")
        new.write_text(str(float(self._clock_file.read_text()) + secs))
        new.rename(self._clock_file)

    def _worker(self) -> int:
        _wait(lambda: bool(self._alive()))
        return self._draw.choice(self._alive())

    def _alive(self) -> list[int]:
        self.workers = {pid for pid in self.workers if Path(f"/proc/{pid}/stat").exists() and _state(pid) != "Z"}
        return sorted(self.workers)

    def _signal(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def run(root: Path, server: PostgresServer, url: str, seed: int, faults: int, tasks: int) -> Report:
    """Strike ``faults`` times while the workers empty the queue of the warehouse at ``root/home``, then let them finish."""
    draw, report, begun = random.Random(seed), Report(), time.monotonic()
    clock_file, home = root / "clock", root / "home"
    clock_file.write_text("0.0")
    with contextlib.ExitStack() as stack:
        folder = root / "socket"
        folder.mkdir()
        proxy = stack.enter_context(severing(folder, server.folder))
        proxied = url.replace(f"host={server.folder}", f"host={folder}")
        watching = stack.enter_context(Warehouse.open(config_of(str(home), url)))
        log = stack.enter_context((root / "workers.log").open("w"))
        full = os.path.ismount(home)
        havoc = Havoc(home, server, database_of(url), proxy, clock_file, draw, full_disks=full)
        nursery = stack.enter_context(_nursery(home, proxied, clock_file, log))
        assert nursery.stdout is not None
        assert nursery.stdin is not None
        printed: list[str] = []
        reader = threading.Thread(target=_follow, args=(nursery, havoc, printed), daemon=True)
        reader.start()
        kinds = [kind for kind, _ in zip(_shuffled(havoc.kinds, faults, draw), range(faults), strict=False)]
        for number, kind in enumerate(kinds):
            _wait_for_ready(watching, number * tasks // (faults + 2))
            havoc.kinds[kind]()
            report.faults[kind] += 1
        nursery.stdin.close()
        nursery.wait(timeout=300)
        reader.join()
        assert nursery.returncode == 0, (root / "workers.log").read_text()[-4000:]
        report.workers_died = int(printed[-1].split()[1])
    report.secs = time.monotonic() - begun
    report.errors = (root / "workers.log").read_text()
    return report


def _shuffled(kinds: dict[str, Callable[[], None]], faults: int, draw: random.Random) -> list[str]:
    """Every kind as often as every other, in any order."""
    listed = [kind for kind, _ in zip(list(kinds) * faults, range(faults), strict=False)]
    draw.shuffle(listed)
    return listed


@contextlib.contextmanager
def _nursery(home: Path, url: str, clock_file: Path, log: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.chaos.nursery", str(home), url, str(WORKERS), str(clock_file)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(command, env=environment, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=log, text=True, start_new_session=True)  # type: ignore[call-overload]  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _follow(nursery: subprocess.Popen[str], havoc: Havoc, printed: list[str]) -> None:
    assert nursery.stdout is not None
    for line in nursery.stdout:
        printed.append(line)
        word, number = line.split()
        if word == "started":
            havoc.workers.add(int(number))


def _wait_for_ready(warehouse: Warehouse, ready: int) -> None:
    query = select(func.count()).where(schema.memos.c.state == MemoState.READY)

    def are_ready() -> bool:
        with warehouse.catalog.read() as connection:
            return int(connection.execute(query).scalar_one()) >= ready

    _wait(are_ready)


def _wait(condition: Callable[[], bool]) -> None:
    """Until the condition holds, or for so long that the next fault may as well strike."""
    deadline = time.monotonic() + _PATIENCE_SECS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def descendants(pid: int) -> set[int]:
    """The processes that a process started, and theirs."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    fresh = {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found
