"""A network with a delay and a bandwidth between clients and servers on one machine: a process that passes bytes on when they are due.

Each byte leaves so many seconds after it came, in order, in each direction, so that any number of messages are on the way at once. The bytes of
one connection and direction are sent at a limited rate.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from trainer.wire.flight.addresses import LOOPBACK, Address

_CHUNK_BYTES = 1 << 20
_PR_SET_TIMERSLACK = 29
_LOOK_SECS = 0.5


@dataclass(frozen=True, slots=True)
class Network:
    """One way between a client and a server takes ``delay_secs``; a connection's direction has ``bytes_per_sec``."""

    delay_secs: float
    bytes_per_sec: float = 1.25e9


@dataclass(eq=False)
class _Direction:
    """The bytes from one socket to another, each chunk with the time when it is due."""

    source: socket.socket
    target: socket.socket
    network: Network
    waiting: deque[tuple[float, memoryview]] = field(default_factory=deque)
    free_at: float = 0.0
    is_ended: bool = False

    def receive(self) -> None:
        """Take what has come."""
        try:
            content = self.source.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        now = time.monotonic()
        self.free_at = max(self.free_at, now) + len(content) / self.network.bytes_per_sec
        self.waiting.append((self.free_at + self.network.delay_secs, memoryview(content)))
        self.is_ended = not content

    def send(self) -> bool:
        """Send what is due; False where the target takes no more now, or ever."""
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            due, content = self.waiting.popleft()
            try:
                if not content:
                    self.target.shutdown(socket.SHUT_WR)
                    continue
                sent = self.target.send(content)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.waiting.clear()
                return False
            if sent < len(content):
                self.waiting.appendleft((due, content[sent:]))
                return False
        return True


class _Proxy:
    """All connections through the network, in one thread."""

    def __init__(self, targets: Sequence[Address], network: Network) -> None:
        self._network = network
        self._targets = {socket.create_server((LOOPBACK.host, 0)): target for target in targets}
        self.addresses = [Address(LOOPBACK.host, one.getsockname()[1]) for one in self._targets]
        self._directions: list[_Direction] = []

    def run(self, pipe: Connection) -> None:
        """Until something comes through the pipe."""
        while True:
            full = [one for one in self._directions if not one.send()]
            self._directions = [one for one in self._directions if one.waiting or not one.is_ended]
            reading = {one.source: one for one in self._directions if not one.is_ended}
            due = [one.waiting[0][0] for one in self._directions if one.waiting and one not in full]
            until = max(min(due) - time.monotonic(), 0.0) if due else _LOOK_SECS
            readable, _, _ = select.select([pipe, *self._targets, *reading], [one.target for one in full], [], until)
            for found in readable:
                if found is pipe:
                    return
                if found in self._targets:
                    self._connect(found)
                else:
                    reading[found].receive()

    def _connect(self, listening: socket.socket) -> None:
        client, _ = listening.accept()
        target = self._targets[listening]
        server = socket.create_connection((target.host, target.port))
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
        self._directions += [_Direction(client, server, self._network), _Direction(server, client, self._network)]


def _run(pipe: Connection, targets: Sequence[Address], network: Network) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000)  # wake up within a microsecond
    proxy = _Proxy(targets, network)
    pipe.send(proxy.addresses)
    proxy.run(pipe)


class DelayedNetwork:
    """Addresses through which clients reach ``targets`` over a network."""

    def __init__(self, targets: Sequence[Address], network: Network) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_run, args=(other, targets, network), daemon=True)
        self._process.start()
        other.close()
        self.addresses: list[Address] = self._pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.send(None)
        self._process.join(2.0)
        self._process.kill()
