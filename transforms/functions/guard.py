"""An audit hook that stops a user's function from reaching files, processes, sockets and the like while it runs.

Python raises an audit event for such an access. Packages that are being imported may read their files. C++ code, the
environment, the clock and random numbers raise no event: see ``second_run.py``.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

_R = TypeVar("_R")

_EVENTS = frozenset({"open", "mmap.__new__", "builtins.input", "_thread.start_new_thread", "sys._current_frames",
                     "sys.addaudithook", "cpython.run_command", "cpython.run_file"})  # fmt: skip
_FAMILIES = frozenset({"_winapi", "ctypes", "fcntl", "ftplib", "gc", "glob", "http", "imaplib", "msvcrt", "nntplib", "os",
                       "pathlib", "poplib", "pty", "resource", "shutil", "signal", "smtplib", "socket", "sqlite3",
                       "subprocess", "syslog", "telnetlib", "tempfile", "urllib", "webbrowser", "winreg"})  # fmt: skip
#: The files of the import system, and the module that reads the source line of a warning.
_READERS = ("<frozen importlib", "<frozen zipimport", linecache.__file__)
_SHOWN_CHARACTERS = 200


class OutsideAccess(Exception):
    """A user's function accessed the outside; raised at the access."""


class _State(threading.local):
    accesses: list[str] | None = None


_STATE = _State()
_INSTALLED = threading.Lock()
_installed = False


def call_guarded(call: Callable[[], _R]) -> tuple[_R, list[str]]:
    """The result of ``call``, and its accesses to the outside whose errors it caught.

    Raises :class:`OutsideAccess` at the first one whose error is not caught.
    """
    _install()
    outer = _STATE.accesses
    accesses: list[str] = []
    _STATE.accesses = accesses
    try:
        return call(), accesses
    finally:
        _STATE.accesses = outer


def _install() -> None:
    """Install one hook per process; it cannot be removed, and acts only within :func:`call_guarded`."""
    global _installed
    with _INSTALLED:
        if not _installed:
            sys.addaudithook(_on_event)
            _installed = True


def _on_event(event: str, arguments: tuple[object, ...]) -> None:
    accesses = _STATE.accesses
    if accesses is None or (event not in _EVENTS and event.partition(".")[0] not in _FAMILIES):
        return
    _STATE.accesses = None  # later accesses are not the function's
    try:
        if _is_of_import(sys._getframe(1)):
            return
        access = f"{event} {', '.join(map(repr, arguments))}"[:_SHOWN_CHARACTERS].strip()
        accesses.append(access)
    finally:
        _STATE.accesses = accesses
    raise OutsideAccess(f"a function of a model reached the outside: {access}")


def _is_of_import(frame: FrameType | None) -> bool:
    """Whether the access comes from the import system or a module that is being imported."""
    while frame is not None and frame.f_code is not call_guarded.__code__:
        if frame.f_code.co_filename.startswith(_READERS):
            return True
        frame = frame.f_back
    return False
