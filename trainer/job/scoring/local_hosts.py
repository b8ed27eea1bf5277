"""The other hosts that score on this machine: processes that are started, watched and ended with this one."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trainer.errors import HostKilled, HostLost
from transforms.child_process import child_environment

_END_SECS = 10.0
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class LocalHosts:
    """Processes that score beside this one.

    Attributes:
        folder: where they meet, with their outputs and the token.
        token: of all hosts.
        processes: by rank, from 1 on.
    """

    folder: Path
    token: str
    processes: tuple[subprocess.Popen[bytes], ...]

    def check(self) -> None:
        """Raise :class:`HostLost` for a process that has failed, and :class:`HostKilled` for one that a signal has ended."""
        for rank, process in enumerate(self.processes, 1):
            if status := process.poll():
                raise (HostKilled if status < 0 else HostLost)("a process that scores must not end before the others", where=f"host {rank}", value=f"status {process.returncode}: {self._last_line(rank)}",
                               next_step="correct what it says, or score with one process: leave --hosts out")  # fmt: skip

    def _last_line(self, rank: int) -> str:
        lines = log_path(self.folder, rank).read_bytes()[-_TAIL_BYTES:].decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


@contextmanager
def local_hosts(hosts: int, command: Callable[[int, Path], Sequence[str]]) -> Iterator[LocalHosts]:
    """Start the hosts from rank 1 on; they are ended with the block, and with this process.

    ``command``: the command line of a rank, for hosts that meet in a folder; ``--supervisor`` and this process are added.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-scoring-") as name:
        folder, token = Path(name), secrets.token_hex(16)
        token_path(folder).touch(mode=0o600)
        token_path(folder).write_text(token)
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(1, hosts):
                with open(log_path(folder, rank), "wb") as log:
                    arguments = [*command(rank, folder), "--supervisor", str(os.getpid())]
                    started.append(
                        subprocess.Popen(
                            arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=child_environment()
                        )
                    )
            yield LocalHosts(folder, token, tuple(started))
            for process in started:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECS)
        finally:
            for process in started:
                process.kill()
                process.wait()


def log_path(folder: Path, rank: int) -> Path:
    """The output of a process."""
    return folder / f"host-{rank}.log"


def token_path(folder: Path) -> Path:
    """The file of the token of the hosts that meet in ``folder``."""
    return folder / "token"
