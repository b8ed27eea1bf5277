"""A process that keeps workers alive: it forks them with everything loaded, and restarts them when they exit.

Run as ``python -m tests.chaos.nursery HOME CATALOG_URL WORKERS CLOCK_FILE``. A line ``CHORE SEED`` on its standard input has a chore
(:mod:`tests.chaos.chores`) done in a process of its own. Prints ``started PID`` for each worker, ``chore PID`` for each chore and
``status PID NUMBER`` for how it ended, and at last the number of workers that died, when its standard input is closed and all are done.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

from pipelines.worker.worker import WorkerConfig, run_worker
from tests.chaos.chores import CHORES
from tests.chaos.scene import config_of
from transforms.errors import HeadraceError
from warehouse.warehouse import Warehouse

#: How a chore ends that was refused with an error of ours, as faults may have it.
REFUSED = 3


def live(home: str, url: str, clock_file: Path, number: int) -> None:
    """One worker, to its end. The time is the one that everybody goes by, and what the clock file adds to it."""

    def body(warehouse: Warehouse) -> None:
        config = WorkerConfig(f"worker-{number}", runner_workers=1, batch_tasks=40, poll_secs=0.1)
        run_worker(warehouse, config, until_idle=True)

    _end_with(home, url, clock_file, body)


def do_chore(home: str, url: str, clock_file: Path, chore: str, seed: int) -> None:
    """One chore, to its end."""
    _end_with(home, url, clock_file, lambda warehouse: CHORES[chore](warehouse, clock_file.parent, Random(seed)))


def _end_with(home: str, url: str, clock_file: Path, body: Callable[[Warehouse], None]) -> None:
    status = 1
    try:
        with Warehouse.open(config_of(home, url)) as opened:
            body(at_its_time(opened, clock_file))
        status = 0
    except HeadraceError:
        status = REFUSED
        traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def at_its_time(opened: Warehouse, clock_file: Path) -> Warehouse:
    """The warehouse by the clock that the file sets."""
    shared = opened.clock
    return Warehouse(opened.config, opened.catalog, opened.storage, lambda: shared() + float(clock_file.read_text()))


class Nursery:
    """Until standard input is closed and every worker has found nothing left to do."""

    def __init__(self, home: str, url: str, workers: int, clock_file: Path) -> None:
        self._place = (home, url, clock_file)
        self._wanted, self._alive, self._number = workers, set[int](), 0
        self._chores, self._heard, self._ending = set[int](), b"", False
        self.died = 0

    def keep(self) -> int:
        """How many workers died."""
        while self._wanted or self._alive or self._chores:
            while len(self._alive) < self._wanted:
                self._number += 1
                self._alive.add(self._fork("started", live, self._number))
            self._reap()
            self._listen()
        return self.died

    def _fork(self, word: str, body: Callable[..., None], *arguments: object) -> int:
        child = os.fork()
        if child == 0:
            body(*self._place, *arguments)
        print(word, child, flush=True)
        return child

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            child, status = os.waitpid(-1, os.WNOHANG)
            if child in self._chores:
                self._chores.discard(child)
                print("status", child, os.waitstatus_to_exitcode(status), flush=True)
            elif child:
                self._alive.discard(child)
                self.died += bool(status)
                if not status and self._ending:
                    self._wanted = 0

    def _listen(self) -> None:
        if self._ending or not select.select([0], [], [], 0.02)[0]:
            time.sleep(0.02)
            return
        read = os.read(0, 1 << 16)
        self._ending = not read
        *lines, self._heard = (self._heard + read).split(b"\n")
        for line in lines:
            chore, _, seed = line.decode().rpartition(" ")
            self._chores.add(self._fork("chore", do_chore, chore, int(seed)))


if __name__ == "__main__":
    home, url, count, clock = sys.argv[1:]
    print("died", Nursery(home, url, int(count), Path(clock)).keep(), flush=True)
