"""The server of children: a process that imports their modules once and forks them on request.

It imports them when work is expected, or at the first child: a worker without a task needs no compiled kernel. It starts no
thread, so forking is safe also where its parent has many threads or has loaded TensorFlow. It ends when its parent ends or closes
the connection, and its children end with it. It is a new interpreter, or a fork of a parent that has no thread yet
(:mod:`pipelines.isolation.server_process`).
"""

from __future__ import annotations

import contextlib
import fcntl
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
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from transforms.installation import own_module

#: The requests: fork, with a connection and a cell, and end a child by its process id, whose answer is a number; and import what
#: children need, which has no answer.
FORK, END, IMPORT = b"F", b"E", b"I"
REQUEST, ANSWER = struct.Struct("<cq"), struct.Struct("<q")
#: What a worker without a task imports as well.
_SHARED = ("warehouse.files.memo_file", "transforms.expressions.expression", "pipelines.fragments.encoded_result",
           "pipelines.isolation.answer")  # fmt: skip
#: What a child would import for its first fragment: what kept machine code refers to, the files of raw data and of memos, and pandas,
#: which Arrow imports at the first value that it converts.
_FIRST_FRAGMENT = ("numba.np.arrayobj", "warehouse.tables.text_pages", "warehouse.files.memo_format.writing", "pandas",
                   "pyarrow.pandas_compat", "pyarrow.vendored.version")  # fmt: skip
#: A setting of numpy's library of linear algebra: its threads sleep at once when they have no work, and do not spin first.
_SLEEP_AT_ONCE = ("OPENBLAS_THREAD_TIMEOUT", "4")
#: Objects between two garbage collections of a child, as Python sets it: a cycle of few objects may hold large arrays.
_COLLECTED_AFTER = (700, 10, 10)
#: An exit code that is not known.
UNKNOWN_STATUS = -1000
#: The period of checks that the parent runs, where the system does not close its socket.
_LOOK_SECS = 1.0
_END_SECS = 2.0


def main(control_fd: int, parent_pid: int) -> None:
    """Serve the process at the other end of ``control_fd`` until it ends, and then end this process."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.set_threshold(*_COLLECTED_AFTER)
        server = _Server(socket.socket(fileno=control_fd))
        try:
            server.serve(parent_pid)
        finally:
            server.end_all()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # to free every module takes a quarter of a second


def become_server(control_fd: int, parent_pid: int) -> None:
    """:func:`main` in a process that was just forked from its parent."""
    os.setsid()
    control_fd = fcntl.fcntl(control_fd, fcntl.F_DUPFD, 3)  # of a parent without standard files it may be one of them
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    _close_all_but(control_fd)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main(control_fd, parent_pid)


def import_shared() -> None:
    """Import what children and a worker without a task have in common."""
    with _without_collection():
        setting, value = _SLEEP_AT_ONCE
        is_given = setting in os.environ
        os.environ.setdefault(setting, value)
        importlib.import_module("numpy")
        if not is_given:
            del os.environ[setting]
        for module in _SHARED:
            importlib.import_module(own_module(module))


@cache
def import_child() -> ModuleType:
    """Import everything that a child needs; its module."""
    import_shared()
    with _without_collection():
        from numba.core.entrypoints import init_all

        from pipelines.isolation import child
        from transforms import kernels
        from transforms.execution.memory import keep_freed_memory
        from transforms.kernels.kept_code import prepare_loading

        for module in pkgutil.iter_modules(kernels.__path__):
            importlib.import_module(f"{kernels.__name__}.{module.name}")
        prepare_loading()
        init_all()  # numba's extensions, which it looks for among all installed packages
        for name in _FIRST_FRAGMENT:
            with contextlib.suppress(ImportError):
                importlib.import_module(own_module(name))
        keep_freed_memory()
    return child


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Collects no garbage, which imports do not make, and excludes what was imported from later collections."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


class _Server:
    """The server's children by process id, with the exit codes of those that ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._ended: dict[int, int | None] = {}
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def serve(self, parent_pid: int) -> None:
        """Answer until the parent ends."""
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
            if what == IMPORT:
                import_child()
                return True
            answer = self._fork(*fds) if what == FORK else self._end(pid)
            self._control.sendall(ANSWER.pack(answer))
        except ConnectionError:
            return False
        return True

    def _fork(self, connection_fd: int, cell_fd: int) -> int:
        """Fork a child; its process id, or the negative error number if the system refuses."""
        server_pid = os.getpid()
        child = import_child()
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or 1)
        if pid == 0:
            self._become_child(child, connection_fd, cell_fd, server_pid)
        os.close(connection_fd)
        os.close(cell_fd)
        if pid > 0:
            self._ended[pid] = None
        return pid

    def _become_child(self, child: ModuleType, connection_fd: int, cell_fd: int, server_pid: int) -> None:
        code = 1
        try:
            os.setsid()  # processes that it starts belong to its group and end with it
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(2, 1)  # output of a user's function is not the worker's output
            _close_all_but(connection_fd, cell_fd)
            # It stays open until the process ends, which the parent sees.
            connection = socket.socket(fileno=connection_fd)
            child.run_child(connection, cell_fd, server_pid)
            code = 0
        except SystemExit as exited:
            code = exited.code if isinstance(exited.code, int) else 1
        except BrokenPipeError:
            code = 0  # the parent closed the connection before the answer
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code & 0xFF)

    def _end(self, pid: int) -> int:
        """Kill a child if it still runs; its exit code, negative for a signal."""
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
                    with contextlib.suppress(ProcessLookupError, PermissionError):  # no process of its group is left
                        os.killpg(pid, signal.SIGKILL)

    def end_all(self) -> None:
        """Kill all children and wait for them, so that the system adds their usage to this process's."""
        for pid, status in self._ended.items():
            if status is None:
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_SECS
        while None in self._ended.values() and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.001)


def _close_all_but(*kept: int) -> None:
    """Close all files but the standard ones and ``kept``: an inherited socket would keep another child's open."""
    first = 3
    for fd in sorted(kept):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
