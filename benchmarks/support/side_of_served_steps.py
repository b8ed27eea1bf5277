"""One side of :mod:`benchmarks.served_steps`: two servers and their client, which makes steps whenever a line asks for some.

Started by its path in the folder of a tree, whose packages it imports. The arguments are the tables, the events of a batch, and whether servers have their rows in a
folder. A line is a number of steps; the answer is the CPU seconds, user and system, of the client and of both servers meanwhile, and the bytes on the wire of a step.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.getcwd())

import numpy as np

from benchmarks.support.drawn_tables import DrawnSet, DrawnTable
from benchmarks.support.server_processes import ServerProcess, connects_to
from trainer.tables.routes.servers.engine import PsEngine

SERVERS, ROWS, DIM, SKEW, BATCHES = 2, 100_000, 16, 1.2, 8
#: Of shared memory, where the keepers of servers have the rows by default.
SHARED = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


def main(tables: int, events: int, has_folder: bool) -> None:
    drawn = DrawnSet((DrawnTable(ROWS, DIM, 1, SKEW),) * tables, events, has_slots=True)
    batches = drawn.batches(BATCHES, seed=1)
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        folders = [Path(folder) / str(k) for k in range(SERVERS)]
        for one in folders:
            one.mkdir()
        servers = [ServerProcess(folder=one if has_folder else None) for one in folders]
        engine = PsEngine(drawn.features(), seed=1, servers=connects_to([one.address for one in servers]), threads=1)
        gradients = np.random.default_rng(0).standard_normal((events, tables * DIM)).astype(np.float32) * np.float32(
            0.01
        )

        def make_steps(count: int) -> None:
            for number in range(count):
                batch = batches[number % BATCHES]
                engine.lookup(batch)
                engine.apply_gradients(batch, gradients)
            engine.finish()

        make_steps(BATCHES)
        print("ready", flush=True)
        for line in sys.stdin:
            steps, before = int(line), [time.process_time(), *(one.cpu_secs for one in servers)]
            sent = engine.wire_bytes
            make_steps(steps)
            used = [after - first for after, first in zip([time.process_time(), *(one.cpu_secs for one in servers)], before, strict=True)]  # fmt: skip
            print(used[0] / steps, sum(used[1:]) / steps, (engine.wire_bytes - sent) // steps, flush=True)
        engine.close()
        for server in servers:
            server.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "folder")
