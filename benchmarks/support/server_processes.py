"""Parameter servers in processes of their own, each with one thread for its rows, and the CPU seconds that each has used."""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from benchmarks.support.job_token import TOKEN
from benchmarks.support.piped_processes import ONE_THREAD
from trainer.servers.client_updates import Greeting
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.service import RequestHandler, ServerService
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables.routes.servers.server_link import Connect
from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.connections import listen

#: Makes the server of a process; a function of a module, which the process imports.
MakeServer: TypeAlias = Callable[[Path | None], RequestHandler]


def row_server(folder: Path | None) -> RowServer:
    """A parameter server as it is run, with its rows in ``folder`` or in the memory of its process."""
    return RowServer(HeldRows(folder, threads=1))


def _serve(pipe: Connection, make: MakeServer, folder: Path | None, port: int) -> None:
    server = make(folder)
    with listen(Address(LOOPBACK.host, port)) as listening, ServerService(listening, server, token=TOKEN) as service:
        pipe.send(service.address)
        while pipe.recv():
            used = resource.getrusage(resource.RUSAGE_SELF)
            pipe.send(used.ru_utime + used.ru_stime)


class ServerProcess:
    """One server; ``port``: 0 for any."""

    def __init__(self, make: MakeServer = row_server, folder: Path | None = None, port: int = 0) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        os.environ |= ONE_THREAD  # of the process that starts now
        self._process = context.Process(target=_serve, args=(other, make, folder, port), daemon=True)
        self._process.start()
        other.close()
        self.address: Address = self._pipe.recv()

    @property
    def cpu_secs(self) -> float:
        """CPU seconds, user and system, of the process so far."""
        self._pipe.send(True)
        secs: float = self._pipe.recv()
        return secs

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """End the process."""
        self._pipe.send(False)
        self._process.join(2.0)
        self.kill()


class ServerProcesses:
    """Several servers, as a context."""

    def __init__(self, count: int, make: MakeServer = row_server) -> None:
        self.servers = [ServerProcess(make) for _ in range(count)]

    @property
    def addresses(self) -> list[Address]:
        """Where they listen."""
        return [one.address for one in self.servers]

    @property
    def cpu_secs(self) -> float:
        """CPU seconds of all servers together."""
        return sum(one.cpu_secs for one in self.servers)

    def connects(self, greeting: Greeting | None = None) -> list[Connect]:
        """Connections to them."""
        return connects_to(self.addresses, greeting)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self.servers:
            one.close()


def connects_to(addresses: Sequence[Address], greeting: Greeting | None = None) -> list[Connect]:
    """Connections to servers at these addresses."""
    options = LinkOptions(replace(greeting or Greeting(), token=TOKEN))
    return [connect_to(address, options) for address in addresses]
