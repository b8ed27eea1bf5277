"""An embedding worker in a process of its own, which a test kills and starts again at the same port.

``python -m tests.support.worker_process PORT SERVERS`` loads the code once, and forks a worker for each line that it reads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from tests.support.processes import PATIENCE_SECS, free_port
from tests.support.server_process import ROOT
from trainer.flight.addresses import Address
from trainer.flight.connections import listen
from trainer.launch.worker_process import WorkerOptions, serve_worker, warm_up


class WorkerProcess:
    """Runs from :meth:`start` to :meth:`kill`, as often as a test wants."""

    def __init__(self, servers: Sequence[Address]) -> None:
        self.address = Address("127.0.0.1", free_port())
        self.pid = 0
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.support.worker_process", str(self.address.port), ",".join(map(str, servers))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
        )  # fmt: skip

    def start(self) -> None:
        """Returns when the worker listens."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write("start\n")
        self._parent.stdin.flush()
        answer = self._parent.stdout.readline()
        assert answer, "the process of workers ended"
        self.pid = int(answer)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        os.killpg(self._parent.pid, signal.SIGKILL)
        self._parent.communicate()


def _serve(port: int, servers: Sequence[Address]) -> None:
    options = WorkerOptions(tuple(servers), server_patience_secs=PATIENCE_SECS)
    service = serve_worker(options, listen(Address("127.0.0.1", port)))
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    while service:
        signal.pause()


def main() -> None:
    servers = [Address.parse(one) for one in sys.argv[2].split(",")]
    warm_up()
    child = 0
    for _ in sys.stdin:
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            _serve(int(sys.argv[1]), servers)


if __name__ == "__main__":
    main()
