"""A process that keeps workers alive: forked from one that has everything loaded, restarted when they die.

Run as ``python -m tests.chaos.nursery HOME CATALOG_URL WORKERS CLOCK_FILE``. Prints ``started PID`` for each worker, ends with the number of
workers that died when its standard input is closed and all are done.
"""

from __future__ import annotations

import os
import select
import sys
import time
import traceback
from pathlib import Path

from pipelines.worker import WorkerConfig, run_worker
from tests.chaos.scene import config_of
from warehouse.warehouse import Warehouse


def live(home: str, url: str, clock_file: Path, number: int) -> None:
    """One worker, to its end. The time is the one that everybody goes by, and what the clock file adds to it."""
    status = 1
    try:
        with Warehouse.open(config_of(home, url)) as opened:
            shared = opened.clock

            def clock() -> float:
                return shared() + float(clock_file.read_text())

            warehouse = Warehouse(opened.config, opened.catalog, opened.storage, clock)
            config = WorkerConfig(f"worker-{number}", runner_workers=1, batch_tasks=40, poll_secs=0.1)
            run_worker(warehouse, config, until_idle=True)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def keep(home: str, url: str, workers: int, clock_file: Path) -> int:
    """Until standard input is closed and every worker has found nothing left to do; how many died."""
    alive: set[int] = set()
    died = number = 0
    wanted, ending = workers, False
    while wanted or alive:
        while len(alive) < wanted:
            number += 1
            child = os.fork()
            if child == 0:
                live(home, url, clock_file, number)
            alive.add(child)
            print("started", child, flush=True)
        child, status = os.waitpid(-1, os.WNOHANG)
        alive.discard(child)
        died += bool(status)
        if child and not status and ending:
            wanted = 0
        if not ending and select.select([sys.stdin], [], [], 0.02)[0]:
            ending = not sys.stdin.readline()
        else:
            time.sleep(0.02)
    return died


if __name__ == "__main__":
    home, url, count, clock = sys.argv[1:]
    print("died", keep(home, url, int(count), Path(clock)), flush=True)
