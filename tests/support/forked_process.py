"""A process that a test kills and starts again at the same port: a parent loads the code once, and forks it for each line that it reads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.processes import PATIENCE_SECS, free_port
from trainer.wire.flight.addresses import Address

ROOT = Path(__file__).resolve().parents[2]


class ForkedProcess:
    """Runs from :meth:`start` to :meth:`kill`, as often as a test wants.

    ``module``: is run with ``arguments`` and calls :func:`fork_for_each_line`; "PORT" among the arguments stands for the port.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self.address, self.pid = Address("127.0.0.1", free_port()), 0
        port = str(self.address.port)
        self._parent = subprocess.Popen(
            [sys.executable, "-m", module, *(port if one == "PORT" else one for one in arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
        )  # fmt: skip

    def start(self) -> None:
        """Returns when the process listens."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write("start\n")
        self._parent.stdin.flush()
        answer = self._parent.stdout.readline()
        assert answer, "the parent of the process ended"
        self.pid = int(answer)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Returns when no thread of the process runs any more, which is later than the signal."""
        self.signal(signal.SIGSTOP)
        end = time.monotonic() + PATIENCE_SECS
        while not _is_stopped(self.pid):
            assert time.monotonic() < end, "the process does not stop"
            time.sleep(0.001)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        os.killpg(self._parent.pid, signal.SIGKILL)
        self._parent.communicate()


def _is_stopped(pid: int) -> bool:
    states = [one.read_text().rpartition(")")[2].split()[0] for one in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


def fork_for_each_line(begin: Callable[[], object]) -> None:
    """In the parent: fork a process for each line that comes, which begins to listen by ``begin`` and then answers until it is killed."""
    child = 0
    for _ in sys.stdin:
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            service = begin()
            sys.stdout.write(f"{os.getpid()}\n")
            sys.stdout.flush()
            while service:
                signal.pause()
