"""The server of children: a process that imports what they need, once, and forks them when it is asked to.

It runs nothing else and starts no thread, so that forking is safe whatever its parent is: a Beam worker full of threads, a
process that has loaded TensorFlow. It ends when its parent hangs up or is gone, and its children with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import select
import signal
import socket
import struct
import time
import traceback
from types import ModuleType

#: What is asked: fork, with a connection and a cell, or end a child, by its number. What is answered: a number.
FORK, END = b"F", b"E"
REQUEST, ANSWER = struct.Struct("<cq"), struct.Struct("<q")
#: In place of an exit code: nobody knows it (yet).
UNKNOWN_STATUS = -1000
#: How often it looks whether its parent is still there, for a system where nobody hangs up in its stead.
_LOOK_SECS = 1.0
_END_SECS = 2.0


def main(control_fd: int, parent_pid: int) -> None:
    """Serve the process at the other end of ``control_fd`` until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    run_child = _prepared()
    server = _Server(control, run_child)
    try:
        server.serve(parent_pid)
    finally:
        server.end_all()


def _prepared() -> ModuleType:
    """Everything imported that a child needs, and set apart from what the collector looks at."""
    from numba.core.registry import cpu_target

    import transforms.kernels
    from pipelines.isolation import child
    from transforms.execution.memory import keep_freed_memory

    for module in pkgutil.iter_modules(transforms.kernels.__path__):
        importlib.import_module(f"transforms.kernels.{module.name}")
    importlib.import_module("warehouse.files.memo_format.writing")
    # Put off until they are first needed, by numba and by Arrow: half of a second each.
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    with contextlib.suppress(ImportError):
        importlib.import_module("pandas")
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    return child


class _Server:
    """Its children by number, each with its exit code once it has ended."""

    def __init__(self, control: socket.socket, child: ModuleType) -> None:
        self._control, self._child = control, child
        self._ended: dict[int, int | None] = {}
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def serve(self, parent_pid: int) -> None:
        """Answer until the parent is gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while os.getppid() == parent_pid:
            ready = {fd for fd, _ in poll.poll(_LOOK_SECS * 1000)}
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                self._reap()
            if self._control.fileno() in ready and not self._answer():
                return

    def _answer(self) -> bool:
        try:
            message, fds, _, _ = socket.recv_fds(self._control, REQUEST.size, 2)
            while message and len(message) < REQUEST.size:
                message += self._control.recv(REQUEST.size - len(message))
            if not message:
                return False
            what, pid = REQUEST.unpack(message)
            answer = self._fork(*fds) if what == FORK else self._end(pid)
            self._control.sendall(ANSWER.pack(answer))
        except ConnectionError:
            return False
        return True

    def _fork(self, connection_fd: int, cell_fd: int) -> int:
        """The new child's number, or the negative error number if the system refuses."""
        server_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or 1)
        if pid == 0:
            self._become_child(connection_fd, cell_fd, server_pid)
        os.close(connection_fd)
        os.close(cell_fd)
        if pid > 0:
            self._ended[pid] = None
        return pid

    def _become_child(self, connection_fd: int, cell_fd: int, server_pid: int) -> None:
        code = 1
        try:
            os.setsid()  # whatever it starts is of its group, and ends with it
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(2, 1)  # what a user's function prints is no part of the worker's output
            _close_all_but(connection_fd, cell_fd)
            # Open until the very end: its end says that this one ended.
            connection = socket.socket(fileno=connection_fd)
            self._child.run_child(connection, cell_fd, server_pid)
            code = 0
        except SystemExit as asked:
            code = asked.code if isinstance(asked.code, int) else 1
        except BrokenPipeError:
            code = 0  # the parent hung up before it had its answer
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code & 0xFF)

    def _end(self, pid: int) -> int:
        """Kill a child if it lives still; its exit code, negative for a signal."""
        deadline = time.monotonic() + _END_SECS
        if self._ended.get(pid, 0) is None:
            os.kill(pid, signal.SIGKILL)
        while self._ended.get(pid, 0) is None and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.001)
        status = self._ended.get(pid)
        if status is None:
            return UNKNOWN_STATUS
        del self._ended[pid]
        return status

    def _reap(self) -> None:
        for pid, status in self._ended.items():
            if status is None:
                found, code = os.waitpid(pid, os.WNOHANG)
                if found:
                    self._ended[pid] = os.waitstatus_to_exitcode(code)
                    with contextlib.suppress(ProcessLookupError, PermissionError):  # it left nobody behind
                        os.killpg(pid, signal.SIGKILL)

    def end_all(self) -> None:
        """Kill whoever is left, and wait for them: what they used is counted with what waits for this process."""
        for pid, status in self._ended.items():
            if status is None:
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_SECS
        while None in self._ended.values() and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.001)


def _close_all_but(*kept: int) -> None:
    """Close every file but standard ones and ``kept``: what stays open in one child would keep another's from ending."""
    first = 3
    for fd in sorted(kept):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
