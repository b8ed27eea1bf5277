"""Parameter servers and embedding workers of a run on this machine: started with it, again when they end, and gone with it."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer.job.launch.keeper import describe_end
from trainer.wire.flight.addresses import LOOPBACK, Address
from transforms.child_process import child_environment
from transforms.errors import StorageError

_LOG = logging.getLogger(__name__)
_SHARED_MEMORY = Path("/dev/shm")
_LOOK_SECS, _START_SECS, _END_SECS = 0.1, 180.0, 5.0

#: The command line of a server, from its options.
ServerCommand = Callable[[Sequence[str]], list[str]]


@dataclass
class _Server:
    name: str
    memory: Path
    address: Address
    process: subprocess.Popen[bytes] | None = None


class LocalServers:
    """``count`` servers on loopback, each in a process of its own, with their rows in shared memory; or embedding workers, without rows.

    A server that ends is started again at its address, with its rows, unless it ends by an error of its own: its keeper has tried it again, or
    the error would repeat, and :meth:`check` raises it. All of them end, and their memory is freed, at the end of the context.

    Args:
        command: the command line of a server.
        token_file: a file with their token, which only this user may read: its path is on their command lines.
        logs: the folder of their outputs.
        kind: the letter before the number of each in its name.
        has_rows: False for embedding workers.
        runs: the run directory, whose checkpoints they write and read their rows of themselves; empty for none.
        memory: the folder in which they have one of their own; None: ``/dev/shm``, or where there is none that of temporary files.
        started: so many of them are started with the context, the others by :meth:`follow`; None: all.
        metrics: the options for the metrics of the server of a name.
    """

    def __init__(
        self,
        count: int,
        command: ServerCommand,
        *,
        token_file: Path,
        logs: Path,
        kind: str = "s",
        has_rows: bool = True,
        runs: str = "",
        memory: Path | None = None,
        started: int | None = None,
        metrics: Callable[[str], Sequence[str]] = lambda name: (),
    ) -> None:
        self._metrics = metrics
        self._has_rows, self._runs = has_rows, runs
        self._command, self._logs, self._token_file = command, logs, token_file
        parent = memory or (_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None)
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-ps-", dir=parent))
        self._servers = [_Server(f"{kind}{k}", self._folder / f"{kind}{k}", LOOPBACK) for k in range(count)]
        self._wanted = {one.name for one in self._servers[:started]}
        self._given_up: dict[str, int] = {}  # the exit statuses of servers that are not started again
        self._revived: set[str] = set()  # those that are started once more all the same
        self._ends = threading.Event()
        self._changing = threading.Lock()  # of a start, or of a loss
        self._watching = threading.Thread(target=self._watch, name="servers", daemon=True)

    def __enter__(self) -> Self:
        try:
            wanted = [one for one in self._servers if one.name in self._wanted]
            for one in wanted:
                self._start(one)
            for one in wanted:
                one.address = self._wait_for_address(one)
            for one in self._servers:
                if one.name not in self._wanted:
                    one.address = _free_address()
        except BaseException:
            self.end()
            raise
        self._watching.start()
        return self

    @property
    def token(self) -> str:
        """The token that their clients must have."""
        return self._token_file.read_text("ascii").strip()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The address of each server."""
        return tuple(one.address for one in self._servers)

    @property
    def processes(self) -> dict[str, int]:
        """The process of each server that runs, by name."""
        return {
            one.name: one.process.pid for one in self._servers if one.process is not None and one.process.poll() is None
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each server, in the order of :attr:`addresses`."""
        return tuple(one.name for one in self._servers)

    def follow(self, names: Collection[str]) -> None:
        """Have the servers of these names run, and no others: those drain, and their rows are gone. Without names nothing changes."""
        if not names or set(names) == self._wanted:
            return
        with self._changing:
            self._wanted = set(names)
            for one in self._servers:
                is_running = one.process is not None and one.process.poll() is None
                if one.name in self._wanted and not is_running and not self._ends.is_set():
                    self._start(one)
                elif one.name not in self._wanted and is_running:
                    assert one.process is not None
                    one.process.send_signal(signal.SIGTERM)

    def lose(self, name: str) -> None:
        """Kill a server with its keeper, and free its memory, as when its machine fails. It is started again without rows."""
        server = next(one for one in self._servers if one.name == name)
        with self._changing:
            if server.process is None:
                return
            with suppress(ProcessLookupError):
                os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()
            shutil.rmtree(server.memory, ignore_errors=True)

    def _start(self, server: _Server) -> None:
        self._logs.mkdir(parents=True, exist_ok=True)
        self._address_file(server).unlink(missing_ok=True)
        options = ["--address", str(server.address), "--supervisor", str(os.getpid()),
                   "--address-file", str(self._address_file(server)), "--token-file", str(self._token_file)]  # fmt: skip
        if self._has_rows:
            options += ["--memory", str(server.memory), *(("--runs", self._runs) if self._runs else ())]
        options += self._metrics(server.name)
        with open(self._logs / f"{server.name}.log", "ab") as log:
            server.process = subprocess.Popen(
                self._command(options), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=child_environment(),
                start_new_session=True,
            )  # fmt: skip

    def _address_file(self, server: _Server) -> Path:
        return self._logs / f"{server.name}.address"  # their memory may be full

    def _wait_for_address(self, server: _Server) -> Address:
        until = time.monotonic() + _START_SECS
        path = self._address_file(server)
        while not path.exists():
            assert server.process is not None
            if server.process.poll() is not None or time.monotonic() >= until:
                raise self._ended("a parameter server did not start", server.name, server.process.poll())
            time.sleep(_LOOK_SECS / 5)
        return Address.parse(path.read_text())

    def _watch(self) -> None:
        """Start servers again that have ended, keeper and all."""
        while not self._ends.wait(_LOOK_SECS):
            for one in self._servers:
                with self._changing:
                    if one.process is None or one.process.poll() is None or self._ends.is_set():
                        continue
                    if one.name not in self._wanted:
                        one.process = None
                        shutil.rmtree(one.memory, ignore_errors=True)
                        continue
                    status = one.process.returncode
                    if status > 0 and one.name not in self._revived:
                        self._given_up.setdefault(one.name, status)
                        continue
                    self._revived.discard(one.name)
                    _LOG.warning("server %s %s; it is started again", one.name, describe_end(status))
                    self._start(one)

    def revive(self) -> None:
        """Start the servers again that have ended by an error, such as a full folder that has space again."""
        with self._changing:
            self._revived |= self._given_up.keys()
            self._given_up.clear()

    def check(self) -> None:
        """Raise :class:`StorageError` if a server has ended by an error, and is not started again. Any thread may call it."""
        for name, status in tuple(self._given_up.items()):
            raise self._ended("a parameter server has ended", name, status)

    def _ended(self, what: str, name: str, status: int | None) -> StorageError:
        log = self._logs / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        errors = [one.partition("error: ")[2] for one in lines if "error: " in one]
        end = "no answer" if status is None else describe_end(status)
        return StorageError(what, where=str(log), value=": ".join([end, *errors[-1:]]), next_step="see its log")

    def end(self) -> None:
        """End the servers, and free their memory."""
        self._ends.set()
        if self._watching.is_alive():
            self._watching.join()
        running = [one.process for one in self._servers if one.process is not None and one.process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGINT)  # at once: they have no clients any more
        until = time.monotonic() + _END_SECS
        for process in running:
            try:
                process.wait(max(until - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def _free_address() -> Address:
    """An address of this machine at which nothing listens now."""
    with socket.socket() as found:
        found.bind((LOOPBACK.host, 0))
        return Address(LOOPBACK.host, found.getsockname()[1])
