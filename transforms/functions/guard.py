"""An audit hook that stops a user's function from reaching files, processes, sockets and the like while it runs.

Python raises an audit event for such an access. Code of packages that is being imported may read its files; C++ code
raises no event, and what the environment, the clock and chance give raises none either: see ``second_run.py``.
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
#: Where the import system's own frames are; and the module that reads the line that a warning points to.
_READERS = ("<frozen importlib", "<frozen zipimport", linecache.__file__)
_SHOWN_CHARACTERS = 200


class OutsideAccess(Exception):
    """A user's function reached the outside; raised where it does."""


class _State(threading.local):
    accesses: list[str] | None = None


_STATE = _State()
_INSTALLED = threading.Lock()
_installed = False


def call_guarded(call: Callable[[], _R]) -> tuple[_R, list[str]]:
    """What ``call`` gives, and the accesses to the outside that it made and whose errors it swallowed.

    Raises :class:`OutsideAccess` at the first one whose error is not swallowed.
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
    """Hooks cannot be taken away: one for the whole process, which does nothing outside of :func:`guarded`."""
    global _installed
    with _INSTALLED:
        if not _installed:
            sys.addaudithook(_on_event)
            _installed = True


def _on_event(event: str, arguments: tuple[object, ...]) -> None:
    accesses = _STATE.accesses
    if accesses is None or (event not in _EVENTS and event.partition(".")[0] not in _FAMILIES):
        return
    _STATE.accesses = None  # what follows is no access of the function
    try:
        if _is_of_import(sys._getframe(1)):
            return
        access = f"{event} {', '.join(map(repr, arguments))}"[:_SHOWN_CHARACTERS].strip()
        accesses.append(access)
    finally:
        _STATE.accesses = accesses
    raise OutsideAccess(f"a function of a model reached the outside: {access}")


def _is_of_import(frame: FrameType | None) -> bool:
    """Whether the import system, or a module that is being imported, asks."""
    while frame is not None and frame.f_code is not call_guarded.__code__:
        if frame.f_code.co_filename.startswith(_READERS):
            return True
        frame = frame.f_back
    return False
