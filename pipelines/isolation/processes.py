"""The pool of child processes: started by a server, killed when they exceed a limit, else kept for the next fragment."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pipelines.errors import ChildrenLost
from pipelines.fragments.progress_cell import Position, ProgressCell, new_cell_file
from pipelines.isolation.answer import LINES, Answer
from pipelines.isolation.bisection import ProcessFailureKind
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.server import ANSWER, END, FORK, IMPORT, REQUEST, UNKNOWN_STATUS
from pipelines.isolation.server_process import ServerProcess, fork_or_start, start_interpreter
from pipelines.isolation.watch import StallClock, memory_of

#: The period of measurements of a child; the shorter one above half of its memory limit.
_LOOK_SECS, _LOOK_SECS_LARGE = 0.05, 0.01
#: An idle child with more than this share of its memory limit is ended.
_KEPT_SHARE = 0.75
#: The period of measurements of an idle child.
_WEIGH_SECS = 0.5
_SERVER_SECS = 120.0
_SERVER_TRIES = 3
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """A child that ended without an answer.

    Attributes:
        kind: Why.
        position: The last step.
        status: The exit code, negative for a signal; ``UNKNOWN_STATUS`` if it is unknown.
    """

    kind: ProcessFailureKind
    position: Position
    status: int = UNKNOWN_STATUS

    @property
    def description(self) -> str:
        """How the process ended, in words."""
        if self.status == UNKNOWN_STATUS:
            return "its process ended"
        if self.status >= 0:
            return f"its process ended with status {self.status}"
        name = signal.Signals(-self.status).name if -self.status in set(signal.Signals) else f"signal {-self.status}"
        return f"its process was ended by {name}"


class ShuttingDown(Exception):
    """The pool is shut down and starts no child."""


class _ServerGone(Exception):
    """The server does not answer. Another one may be started."""


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets; the one for another process blocks without a timeout.

    Beam's clients of Google set a default timeout for new sockets. The other process would take a timeout for the end.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(True)
    return ours, theirs


class _Server:
    """The server of children, seen from its parent. Thread-safe."""

    def __init__(self, start: Callable[[socket.socket], ServerProcess] = start_interpreter) -> None:
        ours, theirs = _socket_pair()
        try:
            self._process = start(theirs)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._control = ours
        self._control.settimeout(_SERVER_SECS)
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def fork(self, connection: socket.socket, cell_fd: int) -> int:
        """Start a child with ``connection``; its process id. Raises :class:`OSError` if the system refuses."""
        pid = self._ask(REQUEST.pack(FORK, 0), [connection.fileno(), cell_fd])
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    def end(self, pid: int) -> int:
        """Kill a child if it still runs; its exit code."""
        try:
            return self._ask(REQUEST.pack(END, pid), [])
        except _ServerGone:
            return UNKNOWN_STATUS  # it ended with its server

    def expect_work(self) -> None:
        """Let the server import what children need, while the caller does other work."""
        with self._lock, contextlib.suppress(OSError):  # the next request finds that it is gone
            self._control.sendall(REQUEST.pack(IMPORT, 0))

    def _ask(self, message: bytes, fds: list[int]) -> int:
        with self._lock:
            try:
                socket.send_fds(self._control, [message], fds)
                answer = b""
                while len(answer) < ANSWER.size:
                    part = self._control.recv(ANSWER.size - len(answer))
                    if not part:
                        raise _ServerGone
                    answer += part
            except (OSError, _ServerGone) as error:
                # A late answer would be taken for that to the next request.
                self._control.close()
                raise _ServerGone from error
        (number,) = ANSWER.unpack(answer)
        return int(number)

    def close(self) -> None:
        """Close the connection, which ends the server and all its children."""
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Child:
    """One child process. For one thread at a time."""

    def __init__(self, server: _Server) -> None:
        ours, theirs = _socket_pair()
        cell_fd = new_cell_file()
        try:
            with theirs:
                self.pid = server.fork(theirs, cell_fd)
            self._cell = ProgressCell.open(cell_fd)
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(cell_fd)
        self._server, self._connection = server, ours
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self._weighed_at = time.monotonic()
        self.is_new = True
        self.is_ended = False

    def ask(
        self, request: Mapping[str, object], work: str, limits: IsolationLimits, components: str = "[]"
    ) -> Answer | ProcessEnd:
        """The child's answer, or how it ended.

        Args:
            request: The action and its arguments.
            work: The work on a fragment, as JSON.
            limits: The limits, resolved for this machine.
            components: The JSON list of documents that ``work`` refers to by position.
        """
        self.is_new = False
        header = json.dumps({**request, "memory_bytes": limits.memory_bytes})
        self._connection.settimeout(limits.stall_secs)
        try:
            self._connection.sendall(f"{header}\n{work}\n{components}\n".encode())
            return self._await_answer(limits)
        except TimeoutError:
            return self._end("stalled")
        except OSError:
            return self._end("lost")

    def _await_answer(self, limits: IsolationLimits) -> Answer | ProcessEnd:
        stall = StallClock(self._cell, limits.stall_secs, time.monotonic())
        answer, lines = bytearray(), 0
        look_secs, looked = _LOOK_SECS, time.monotonic()
        while True:
            if self._poll.poll(look_secs * 1000):
                part = self._connection.recv(_READ_BYTES)
                if not part:
                    return self._end("lost")
                answer += part
                lines += part.count(b"\n")
                if lines == LINES:
                    return Answer.from_bytes(bytes(answer))
            now = time.monotonic()
            if now - looked < look_secs:
                continue
            looked = now
            held = memory_of(self.pid) or 0
            if held > limits.memory_bytes:
                return self._end("memory")
            if stall.is_stalled(now):
                return self._end("stalled")
            look_secs = _LOOK_SECS_LARGE if 2 * held > limits.memory_bytes else _LOOK_SECS

    def has_grown_beyond(self, memory_bytes: float) -> bool:
        """Whether it holds more memory than that; measured from time to time."""
        now = time.monotonic()
        if now - self._weighed_at < _WEIGH_SECS:
            return False
        self._weighed_at = now
        return (memory_of(self.pid) or 0) > memory_bytes

    @property
    def is_gone(self) -> bool:
        """Whether it ended while it was idle."""
        return bool(self._poll.poll(0))

    def _end(self, kind: ProcessFailureKind) -> ProcessEnd:
        position = self._cell.position
        return ProcessEnd(kind, position, self.close())

    def close(self) -> int:
        """Kill it if it still runs; its exit code. To be called once."""
        self.is_ended = True
        status = self._server.end(self.pid)
        self._connection.close()
        self._cell.close()
        return status


class ChildProcesses:
    """The children of this process, started on demand; at most ``most`` work at a time. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._places = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._working, self._most_working = 0, 0
        self._server: _Server | None = None
        self._shutting_down = False
        self.owner = os.getpid()
        self.started = 0

    @property
    def running(self) -> tuple[int, ...]:
        """The process ids of the server and of the idle children."""
        with self._lock:
            servers = [] if self._server is None else [self._server.pid]
            return (*servers, *(child.pid for child in self._idle))

    def prepare(self) -> None:
        """Start the server if there is none.

        Raises :class:`ChildrenLost` when the system refuses to start a process.
        """
        self._start_server()

    def prepare_at_start(self) -> None:
        """As :meth:`prepare`, for a process that just began: the server is a fork of it, if that is safe.

        What a child and a worker without a task have in common is imported here first, and not again in the server.
        """
        self._start_server(fork_or_start)

    def expect_work(self) -> None:
        """As :meth:`prepare`, when fragments follow soon: the server imports what children need, while the caller does other work."""
        self._start_server().expect_work()

    def shut_down(self) -> None:
        """End every child, and start no more: this process ends.

        Threads that use or request a child get :class:`ShuttingDown`.
        """
        self._shutting_down = True
        self.close()

    def _start_server(self, start: Callable[[socket.socket], ServerProcess] = start_interpreter) -> _Server:
        with self._lock:
            if self._shutting_down:
                raise ShuttingDown
            try:
                self._server = self._server or _Server(start)
            except OSError as error:
                raise _refusal(error) from error
            return self._server

    @contextmanager
    def child(self, limits: IsolationLimits, *, fresh: bool = False) -> Iterator[Child]:
        """A child for the time of the block, a new one if ``fresh``; kept afterwards if it still runs.

        Raises :class:`ChildrenLost` when the system refuses to start a process.
        """
        with self._places, self._count_working():
            child = self._take(fresh)
            try:
                yield child
            except BaseException:
                if not child.is_ended:
                    child.close()
                raise
            if not child.is_ended:
                self._keep(child, limits)

    @contextmanager
    def _count_working(self) -> Iterator[None]:
        with self._lock:
            self._working += 1
            self._most_working = max(self._most_working, self._working)
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1

    def _take(self, fresh: bool) -> Child:
        while not fresh and (idle := self._take_idle()) is not None:
            if not idle.is_gone:
                return idle
            idle.close()
        for _ in range(_SERVER_TRIES):
            server = self._start_server()
            try:
                child = Child(server)
            except _ServerGone:
                self._drop(server)
                continue
            except OSError as error:
                raise _refusal(error) from error
            with self._lock:
                self.started += 1
            return child
        raise ChildrenLost("child processes cannot be started", value=f"{_SERVER_TRIES} tries",
                           next_step="see the output of Python above")  # fmt: skip

    def _take_idle(self) -> Child | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _keep(self, child: Child, limits: IsolationLimits) -> None:
        if child.has_grown_beyond(_KEPT_SHARE * limits.memory_bytes):
            child.close()
            return
        with self._lock:
            self._idle.append(child)
            # New ones are requested repeatedly; only as many are kept as ever worked at once, the latest of them.
            surplus = self._idle[: max(0, len(self._idle) - self._most_working)]
            del self._idle[: len(surplus)]
        for one in surplus:
            one.close()

    def _drop(self, server: _Server) -> None:
        with self._lock:
            if self._server is not server:
                return  # another thread dropped it
            self._server = None
            idle, self._idle = self._idle, []
        for child in idle:
            child.close()
        server.close()

    def close(self) -> None:
        """End the server and every child."""
        with self._lock:
            server = self._server
        if server is not None:
            self._drop(server)


def _refusal(error: OSError) -> ChildrenLost:
    return ChildrenLost("the system refuses to start a child process", value=str(error),
                        next_step="raise the limit of processes or of open files")  # fmt: skip


_LOCK = threading.Lock()
_ours: ChildProcesses | None = None


def child_processes() -> ChildProcesses:
    """The pool of this process, shared by all jobs and threads; it ends with the process."""
    global _ours
    with _LOCK:
        if _ours is None or _ours.owner != os.getpid():  # a fork does not own its parent's children
            _ours = ChildProcesses(max(64, 4 * (os.cpu_count() or 1)))
            atexit.register(_close_at_exit, _ours)
        return _ours


def _close_at_exit(processes: ChildProcesses) -> None:
    if processes.owner == os.getpid():
        with contextlib.suppress(OSError):
            processes.close()
