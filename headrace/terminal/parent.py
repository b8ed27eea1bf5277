"""A command that another Python process has started: it sends its progress, and its screen or its error, to that process.

Each message is a line of JSON with one member: ``progress`` (what, done, total, unit), ``screen`` or ``error`` (a pickle in base64: parent and
child are one installation). A parent that is gone ends the command as SIGTERM does.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field

from transforms.errors import HeadraceError


@dataclass(frozen=True, slots=True)
class Progress:
    """What a command does now: ``done`` of ``total`` units; a total of 0 is not known."""

    what: str
    done: int
    total: int
    unit: str


@dataclass(frozen=True)
class Parent:
    """The writing end of a pipe to the process that started this one.

    Attributes:
        descriptor: of the pipe.
    """

    descriptor: int
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def progress(self, now: Progress) -> None:
        """Send progress."""
        self._send({"progress": [now.what, now.done, now.total, now.unit]})

    def screen(self, screen: object) -> None:
        """Send what the command shows; the last screen counts."""
        self._send({"screen": _pickled(screen)})

    def error(self, error: HeadraceError) -> None:
        """Send why the command ends."""
        self._send({"error": _pickled(error)})

    def _send(self, message: object) -> None:
        left = memoryview((json.dumps(message) + "\n").encode())
        with self._lock:
            try:
                while left:
                    left = left[os.write(self.descriptor, left) :]
            except BrokenPipeError:
                os.kill(os.getpid(), signal.SIGTERM)


def _pickled(value: object) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


#: The process that started this one and waits for its screen; None in a command that a person has started.
parent_of: ContextVar[Parent | None] = ContextVar("parent_of", default=None)
