"""A parameter server in a process of its own, which a test kills and starts again on the same memory and port.

``python -m tests.support.server_process FOLDER PORT`` loads the code once, and forks a server for each line that it reads.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.support.processes import free_port
from trainer.embedding import SGD, TableSpec
from trainer.embedding.cpu.layout import TableOrigin
from trainer.embedding.engine import ChangedRows
from trainer.embedding.ps.row_messages import RowGradients, RowNumbers
from trainer.embedding.ps.table_documents import held_tables
from trainer.flight.addresses import Address
from trainer.flight.connections import listen
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.service import ServerService

ROOT = Path(__file__).resolve().parents[2]


class ServerProcess:
    """Runs from :meth:`start` to :meth:`kill`, as often as a test wants."""

    def __init__(self, folder: Path) -> None:
        self.address = Address("127.0.0.1", free_port())
        self.pid, self._folder = 0, folder
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.support.server_process", str(folder), str(self.address.port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
        )  # fmt: skip

    def start(self) -> None:
        """Returns when the server listens."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write("start\n")
        self._parent.stdin.flush()
        answer = self._parent.stdout.readline()
        assert answer, "the process of servers ended"
        self.pid = int(answer)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def lose(self) -> None:
        """Kill it, and lose its rows, as a machine does that fails; :meth:`start` starts another one at its address."""
        self.kill()
        shutil.rmtree(self._folder)
        self._folder.mkdir()

    def close(self) -> None:
        os.killpg(self._parent.pid, signal.SIGKILL)
        self._parent.communicate()


def _warm_up() -> None:
    """Load all loops, so that forked servers begin with them."""
    table = TableSpec("warm", 1, 1, SGD(1.0))
    rows = HeldRows(None)
    rows.open(held_tables([(table, TableOrigin("warm"))], 0), 0)
    numbers = RowNumbers(np.zeros(1, np.int32), np.ones(1, np.int64))
    rows.fetch(numbers)
    rows.update([(0, RowGradients(numbers, np.ones(1, np.float32), np.zeros(1, np.float32)))], 1)
    rows.begin_load()
    rows.load(0, ChangedRows(np.zeros(1, np.int64), np.zeros((1, 1), np.float32), np.zeros((1, 0), np.float32)))
    rows.end_load()


def _serve(folder: Path, port: int) -> None:
    service = ServerService(listen(Address("127.0.0.1", port)), RowServer(HeldRows(folder)))
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    while service:
        signal.pause()


def main() -> None:
    _warm_up()
    child = 0
    for _ in sys.stdin:
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            _serve(Path(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()
