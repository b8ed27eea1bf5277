"""A bare connection over loopback: requests to another process, and answers of fixed lengths."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection


def process_cpu_secs(pid: int) -> float:
    """The CPU seconds of a process with all its threads, by the clock that the system has for it."""
    return time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED of clock_getcpuclockid(3)


@dataclass(frozen=True)
class Loopback:
    """A request and its answer, each time that it is called; ``pid``: of the process that answers."""

    connection: socket.socket
    request: bytes
    room: bytearray
    pid: int

    def __call__(self) -> None:
        self.connection.sendall(self.request)
        _received(self.connection, self.room)


def _answer(pipe: Connection, request_bytes: int, answer_bytes: int) -> None:
    content = bytes(answer_bytes)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pipe.send(listening.getsockname()[1])
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        room = bytearray(request_bytes)
        while _received(connection, room):
            connection.sendall(content)


def _received(connection: socket.socket, room: bytearray) -> bool:
    view = memoryview(room)
    while view:
        taken = connection.recv_into(view)
        if not taken:
            return False
        view = view[taken:]
    return True


@contextmanager
def loopback(request_bytes: int, answer_bytes: int) -> Iterator[Loopback]:
    """A request to another process, and its answer, over a bare connection."""
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=_answer, args=(other, request_bytes, answer_bytes), daemon=True)
    process.start()
    assert process.pid is not None
    with socket.create_connection(("127.0.0.1", pipe.recv())) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Loopback(connection, bytes(request_bytes), bytearray(answer_bytes), process.pid)
    process.join(5.0)
    process.kill()
