"""Faults of one run: what each does, and how it is undone."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from sqlalchemy import func, select

from tests.chaos.chores import CHORES
from tests.chaos.nursery import REFUSED
from tests.chaos.scene import LEASE_SECS, config_of
from tests.contracts.severing_proxy import SeveringProxy, severing
from tests.support.postgresql import PostgresServer, database_of
from transforms.errors import HeadraceError
from warehouse.catalog import schema
from warehouse.scheduling.task_states import MemoState
from warehouse.warehouse import Warehouse

REPOSITORY = Path(__file__).resolve().parents[2]
WORKERS = 3
_ENDINGS = {0: "done", REFUSED: "refused", -signal.SIGKILL: "killed"}
#: A fault is struck when so much has got done since the last one, or after this time if nothing does.
_PATIENCE_SECS = 20.0


@dataclass
class Report:
    """What a run was like. ``broken``: chores that ended with an error that is not one of ours, or not at all."""

    faults: Counter[str] = field(default_factory=Counter)
    workers_died: int = 0
    chores: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
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


Kinds = dict[str, Callable[[], None]]


def postgres_faults(server: PostgresServer, database: str, proxy: SeveringProxy, draw: random.Random) -> Kinds:
    """What happens to connections, where the catalog is reached through a proxy."""

    def lose_connections() -> None:
        server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")

    def cut_commit() -> None:
        """The next commit never reaches the server, or its answer is lost."""
        before = proxy.severed
        proxy.sever = draw.choice(("before", "after"))
        _wait(lambda: proxy.severed > before)
        proxy.sever = None

    return {"connections lost": lose_connections, "commit cut off": cut_commit}


def sqlite_faults(file: Path, draw: random.Random) -> Kinds:
    """What happens to a catalog in a file."""

    def hold_lock() -> None:
        """Another process holds the write lock for some time."""
        with (
            contextlib.closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as connection,
            contextlib.suppress(sqlite3.OperationalError),  # the disk may be full
        ):
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(draw.uniform(0.2, 2.0))
            connection.execute("ROLLBACK")

    return {"catalog locked": hold_lock}


class Havoc:
    """Strikes at the workers of one warehouse. ``kinds``: the faults that are the catalog's; chores go to the nursery."""

    def __init__(self, home: Path, clock_file: Path, draw: random.Random, kinds: Kinds, *, full_disks: bool) -> None:
        self._home, self._clock_file, self._draw = home, clock_file, draw
        self.nursery: IO[str] | None = None
        self.workers: set[int] = set()
        self.chores: dict[int, str] = {}
        self.begun: list[str] = []
        self.kinds: Kinds = {
            "worker killed": self.kill_worker,
            "child killed": self.kill_child,
            "worker paused": self.pause_worker,
            "storage error": self.refuse_writes,
            "clock jump": self.jump_clock,
            **kinds,
        }
        if full_disks:
            self.kinds["disk full"] = self.fill_disk

    def add_chores(self) -> None:
        """Models come and go, the table changes, the warehouse is kept; and any of these is killed."""
        self.kinds |= {chore: partial(self.begin, chore) for chore in CHORES}
        self.kinds["chore killed"] = self.kill_chore

    def begin(self, chore: str) -> None:
        """Have a chore done beside the workers."""
        assert self.nursery is not None
        self.begun.append(chore)
        self.nursery.write(f"{chore} {self._draw.randrange(1 << 30)}\n")
        self.nursery.flush()

    def kill_chore(self) -> None:
        """One of any kind, at any moment of it."""
        count = len(self.chores)
        self.begin(self._draw.choice(list(CHORES)))
        _wait(lambda: len(self.chores) > count)
        time.sleep(self._draw.uniform(0, 0.6))
        for chore in list(self.chores)[count:][-1:]:  # none, if the nursery is late
            self._signal(chore, signal.SIGKILL)

    def kill_worker(self) -> None:
        for worker in self._one_worker():
            self._signal(worker, signal.SIGKILL)

    def kill_child(self) -> None:
        """A process that a worker started; the worker itself where it has none just now."""
        for worker in self._one_worker():
            self._signal(self._draw.choice(sorted(descendants(worker)) or [worker]), signal.SIGKILL)

    def pause_worker(self) -> None:
        """For longer than its lease lasts: it comes back late."""
        for worker in self._one_worker():
            self._signal(worker, signal.SIGSTOP)
            time.sleep(LEASE_SECS * 1.5)
            self._signal(worker, signal.SIGCONT)

    def refuse_writes(self) -> None:
        """The folder of the memos is not there, and nothing can be put in its place."""
        memos, away = self._home / "memos", self._home / "memos-away"
        memos.mkdir(exist_ok=True)
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

    def _one_worker(self) -> list[int]:
        """One of those alive; none if they are all between their end and their restart, for longer than is waited for."""
        alive: list[int] = []

        def is_any_alive() -> bool:
            alive[:] = self._alive()
            return bool(alive)

        _wait(is_any_alive)
        return [self._draw.choice(alive)] if alive else []

    def _alive(self) -> list[int]:
        # Another thread adds workers meanwhile: none that it adds is forgotten.
        self.workers.difference_update([pid for pid in tuple(self.workers) if _state(pid) == "Z"])
        return sorted(self.workers)

    def _signal(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def run(root: Path, server: PostgresServer, url: str, seed: int, faults: int, tasks: int) -> Report:
    """Strike ``faults`` times while the workers empty the queue of the warehouse at ``root/home``, then let them finish."""
    draw, clock_file, home = random.Random(seed), root / "clock", root / "home"
    clock_file.write_text("0.0")
    with contextlib.ExitStack() as stack:
        proxied, kinds = stack.enter_context(proxied_postgres(root, server, url, draw))
        watching = stack.enter_context(Warehouse.open(config_of(str(home), url)))
        havoc = Havoc(home, clock_file, draw, kinds, full_disks=os.path.ismount(home))
        with struck(root, proxied, havoc) as report:
            for number, kind in enumerate(shuffled(havoc.kinds, faults, draw)):
                _wait_for_ready(watching, number * tasks // (faults + 2))
                havoc.kinds[kind]()
                report.faults[kind] += 1
    return report


@contextlib.contextmanager
def proxied_postgres(root: Path, server: PostgresServer, url: str, draw: random.Random) -> Iterator[tuple[str, Kinds]]:
    """The URL of a database by way of a proxy, and the faults of its connections."""
    folder = root / "socket"
    folder.mkdir()
    with severing(folder, server.folder) as proxy:
        proxied = url.replace(f"host={server.folder}", f"host={folder}")
        yield proxied, postgres_faults(server, database_of(url), proxy, draw)


@contextlib.contextmanager
def struck(root: Path, url: str, havoc: Havoc) -> Iterator[Report]:
    """Workers that compute while the block strikes at them, and finish after it; the report is whole then."""
    report, begun, printed = Report(), time.monotonic(), list[str]()
    with (root / "workers.log").open("a") as log, _nursery(root / "home", url, root / "clock", log) as nursery:
        assert nursery.stdout is not None
        assert nursery.stdin is not None
        havoc.nursery = nursery.stdin
        reader = threading.Thread(target=_follow, args=(nursery, havoc, report, printed), daemon=True)
        reader.start()
        yield report
        nursery.stdin.close()
        nursery.wait(timeout=600)
        reader.join()
        assert nursery.returncode == 0, (root / "workers.log").read_text()[-4000:]
        report.workers_died = int(printed[-1].split()[1])
    report.secs = time.monotonic() - begun
    report.errors = (root / "workers.log").read_text()


def shuffled(kinds: Kinds, faults: int, draw: random.Random) -> list[str]:
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


def _follow(nursery: subprocess.Popen[str], havoc: Havoc, report: Report, printed: list[str]) -> None:
    assert nursery.stdout is not None
    for line in nursery.stdout:
        printed.append(line)
        word, number, *status = line.split()
        if word == "started":
            havoc.workers.add(int(number))
        elif word == "chore":
            havoc.chores[int(number)] = havoc.begun[len(havoc.chores)]
        elif word == "status":
            how = _ENDINGS.get(int(status[0]), "broke")
            report.chores[f"{havoc.chores[int(number)]}, {how}"] += 1
            if how == "broke":
                report.broken.append(havoc.chores[int(number)])


def wait_for_leases(warehouse: Warehouse, leased: int, patience_secs: float) -> int:
    """Until so many tasks were leased in all, which only grows, or for so long; how many they are."""
    query = select(func.coalesce(func.sum(schema.clients.c.leased_tasks), 0))

    def count() -> int:
        with contextlib.suppress(HeadraceError), warehouse.catalog.read() as connection:
            return int(connection.execute(query).scalar_one())
        return 0

    deadline = time.monotonic() + patience_secs
    while (found := count()) < leased and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


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
