"""``headrace ps serve`` or ``worker`` in a process of its own, which a test ends and starts again at its address."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.processes import PATIENCE_SECS, free_port, wait_until
from trainer.job.launch.chaos.links import Links
from trainer.wire.flight.addresses import Address


class DrainedServer:
    """A server; ``folder``: of its rows, which are lost when it is started again, and of its log."""

    def __init__(self, folder: Path, *options: str, kind: str = "serve") -> None:
        self.folder, self.address = folder, Address("127.0.0.1", free_port())
        memory = ("--memory", str(folder / "rows")) if kind == "serve" else ()
        self._arguments = (
            kind,
            "--address",
            str(self.address),
            "--address-file",
            str(folder / "address"),
            "--no-token",
            *memory,
            *options,
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, keeps_rows: bool = False) -> None:
        """Returns when it listens."""
        if not keeps_rows:
            shutil.rmtree(self.folder / "rows", ignore_errors=True)
        self.begin()
        assert self.process is not None
        wait_until((self.folder / "address").exists, "the server listens", {"server": self.process})

    def begin(self) -> None:
        """Start the process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "address").unlink(missing_ok=True)
        command = [sys.executable, "-m", "headrace", "ps", *self._arguments]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def terminate(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def status(self) -> int:
        """The exit status, once it has ended."""
        assert self.process is not None
        return self.process.wait(PATIENCE_SECS)

    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()  # its child ends with it
            self.process.wait()


@contextmanager
def at_a_distance(servers: Sequence[DrainedServer], secs: float = 0.01) -> Iterator[Callable[[], None]]:
    """Their clients reach them, from now on, over connections that take this time each way, until what this yields is called.

    So a step lasts long enough for what happens in an epoch, however fast the machine.
    """
    with Links() as links:
        opened = [links.open(partial(_same, one.address)) for one in servers]

        def delay(secs: float) -> None:
            for link in opened:
                links.delay(link, secs)

        for one, link in zip(servers, opened, strict=True):
            one.address = link.address
        delay(secs)
        yield partial(delay, 0.0)


def _same(address: Address) -> Address:
    return address
