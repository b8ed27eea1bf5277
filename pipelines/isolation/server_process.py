"""The process of the server of children, as its parent starts it: a new interpreter, or a fork of the parent itself.

A fork does not import again what both need: numpy, Arrow, the operators. It copies the parent's locks as they are,
without the threads that would release them. Therefore only a parent without other threads is forked, before it opens a connection or
a file: ``headrace work`` is, as its first step. In a notebook, in a remote Beam worker, and when a server was lost, it is a new
interpreter.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from typing import Protocol

from pipelines.isolation import server
from transforms.child_process import child_environment

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from headrace.pipelines.isolation.server import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
_LOOK_SECS = 0.005


class ServerProcess(Protocol):
    """What a parent needs of :class:`subprocess.Popen`."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises :class:`subprocess.TimeoutExpired`."""

    def kill(self) -> None:
        """End it."""


def start_interpreter(control: socket.socket) -> ServerProcess:
    """A new interpreter that serves at ``control``. Raises :class:`OSError` if the system refuses."""
    paths = json.dumps([os.path.abspath(path) for path in sys.path])
    command = [sys.executable, "-c", _START, paths, str(control.fileno()), str(os.getpid())]
    # A session of its own: Ctrl-C in the terminal is handled by the parent.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=[control.fileno()], start_new_session=True,
                            env=child_environment())  # fmt: skip


def fork_or_start(control: socket.socket) -> ServerProcess:
    """A fork of this process if it has one thread, else a new interpreter. Raises :class:`OSError` if the system refuses."""
    if not is_single_threaded():
        return start_interpreter(control)
    server.import_shared()
    # numpy and Arrow have made threads of their own, which they stop, or lock, when their process forks.
    return _Forked(control) if threading.active_count() == 1 else start_interpreter(control)


def is_single_threaded() -> bool:
    """Whether this process has no thread but this one; False where the system does not list them."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


class _Forked:
    """A fork of this process that serves at ``control``."""

    def __init__(self, control: socket.socket) -> None:
        parent_pid = os.getpid()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or both processes write what it holds
        self.pid = os.fork()
        if self.pid == 0:
            try:
                server.become_server(control.fileno(), parent_pid)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """As :meth:`subprocess.Popen.wait`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._status is None:
            try:
                found, status = os.waitpid(self.pid, 0 if timeout is None else os.WNOHANG)
            except ChildProcessError:  # the system keeps no status where SIGCHLD is ignored
                self._status = server.UNKNOWN_STATUS
                break
            if found:
                self._status = os.waitstatus_to_exitcode(status)
            elif timeout is not None and deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("the server of children", timeout)
            else:
                time.sleep(_LOOK_SECS)
        return self._status

    def kill(self) -> None:
        """As :meth:`subprocess.Popen.kill`."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
