"""The TensorFlow servers of a slice of several machines: processes of this one, whose CPUs stand for the devices."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import end, free_port, is_listening, start, wait_until


class SliceServer:
    """The server of one machine, as ``headrace role tpu-server`` runs it; ``devices``: of its machine."""

    def __init__(self, folder: Path, devices: int) -> None:
        self.port, self._devices, self._folder = free_port(), devices, folder
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, again after :meth:`kill` at the same address."""
        command = [*(sys.executable, "-m", "headrace", "role", "tpu-server"), "--port", str(self.port), "--cpus", str(self._devices)]  # fmt: skip
        self.process = start(command, self._folder / f"tpu-server-{self.port}.log")

    def wait(self) -> None:
        """Until it serves."""
        wait_until(lambda: is_listening(self.port), "the TensorFlow server serves", {"server": self.process})

    def kill(self) -> None:
        end(self.process)


@contextmanager
def slice_servers(folder: Path, machines: int = 2, devices: int = 2) -> Iterator[list[SliceServer]]:
    """Servers of so many machines with so many devices each, which end with the block."""
    servers = [SliceServer(folder, devices) for _ in range(machines)]
    try:
        for one in servers:
            one.wait()
        yield servers
    finally:
        for one in servers:
            one.kill()
