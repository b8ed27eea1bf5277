"""A parameter server in a process of its own, which a test kills and starts again on the same memory and port.

``python -m tests.support.server_process FOLDER PORT TOKEN_FILE RUNS`` loads the code once, and forks a server for each line that it reads.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.support.forked_process import ForkedProcess, fork_for_each_line
from trainer.servers.allowed_runs import allowed_runs
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.service import ServerService
from trainer.tables import SGD, TableSpec
from trainer.tables.engine import ChangedRows
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.routes.servers.row_messages import RowGradients, RowNumbers
from trainer.tables.routes.servers.table_documents import held_tables
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.connections import listen


class ServerProcess(ForkedProcess):
    """A server, whose rows are in ``folder``; ``token_file``: with the token of its clients, ``runs``: where it writes shards; empty for none."""

    def __init__(self, folder: Path, token_file: str = "", runs: str = "") -> None:
        super().__init__("tests.support.server_process", str(folder), "PORT", token_file, runs)
        self._folder = folder

    def lose(self) -> None:
        """Kill it, and lose its rows, as a machine does that fails; :meth:`start` starts another one at its address."""
        self.kill()
        shutil.rmtree(self._folder)
        self._folder.mkdir()


@contextmanager
def killed_meanwhile(servers: Sequence[ServerProcess], times: int) -> Iterator[Callable[[], bool]]:
    """Within the block one of the servers after the other is killed and started again; the function says whether all were."""

    def disturb() -> None:
        draw = random.Random(1)
        for _ in range(times):
            one = draw.choice(servers)
            one.kill()
            one.start()
            time.sleep(draw.uniform(0.0, 0.02))

    with ThreadPoolExecutor(1) as pool:
        disturbing = pool.submit(disturb)
        yield disturbing.done
        disturbing.result()


def _warm_up() -> None:
    """Load all loops, so that forked servers begin with them."""
    table = TableSpec("warm", 1, 1, SGD(1.0))
    rows = HeldRows(None)
    rows.open(held_tables([(table, TableOrigin("warm"))], 0), 0)
    numbers = RowNumbers(np.zeros(1, np.int32), np.ones(1, np.int64))
    rows.fetch(numbers)
    rows.update([(0, RowGradients(numbers, np.ones(1, np.float32), np.zeros(1, np.float32)), 0)], 1)
    rows.begin_load()
    rows.load(0, ChangedRows(np.zeros(1, np.int64), np.zeros((1, 1), np.float32), np.zeros((1, 0), np.float32)))
    rows.end_load()


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    token = Path(sys.argv[3]).read_text() if sys.argv[3] else ""
    runs = allowed_runs(sys.argv[4:5] if sys.argv[4] else ())
    _warm_up()
    fork_for_each_line(
        lambda: ServerService(listen(Address("127.0.0.1", port)), RowServer(HeldRows(folder), runs=runs), token=token)
    )


if __name__ == "__main__":
    main()
