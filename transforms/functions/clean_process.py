"""A clean interpreter in another process, with the installed packages as in a worker.

It describes rebuilt bundles and runs them. Its environment differs from this process: another hash seed, another time
zone, no home. A request and an answer are each a line of JSON and a payload of the stated size.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from transforms.errors import StorageError
from transforms.installation import ROOT

Message = Mapping[str, Any]

_START = (
    "import json, sys; sys.path += json.loads(sys.argv[1]); "
    "from headrace.transforms.functions.clean_requests import main; main(float(sys.argv[2]))"
)
#: The environment that a process needs to start and that the function does not see.
_KEPT = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "SYSTEMROOT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_ELSEWHERE = {"TZ": "HRT-5:45", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
_ANSWER_SECS = 600.0
_READ_BYTES = 1 << 20


class ProcessEnded(Exception):
    """The other process did not answer."""


class CleanProcess:
    """One clean process, started at the first request and again after it has ended. Thread-safe.

    ``seed`` is its PYTHONHASHSEED; after ``idle_secs`` without a request it ends.
    """

    def __init__(self, seed: int, idle_secs: float) -> None:
        self._seed, self._idle_secs = seed, idle_secs
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, request: Message, payload: bytes = b"") -> tuple[Message, bytes]:
        """The answer. Raises :class:`ProcessEnded` if the process ends or does not answer within 600 s."""
        with self._lock:
            process = self.start()
            try:
                assert process.stdin is not None, "it is a pipe"
                assert process.stdout is not None, "it is a pipe"
                write_message(process.stdin, request, payload)
                return _read(process.stdout)
            except (OSError, EOFError, ValueError) as error:
                self.close()
                raise ProcessEnded(f"its process ended with {process.returncode}, {error}") from error

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, without waiting for it. A process that was forked from this one starts its own."""
        if self._owner != os.getpid() or self._running is None or self._running.poll() is not None:
            self._running, self._owner = _started(self._seed, self._idle_secs), os.getpid()
        return self._running

    def close(self) -> None:
        """End it, if it runs."""
        if self._running is not None and self._owner == os.getpid():
            self._running.kill()
            self._running.wait()
            for pipe in (self._running.stdin, self._running.stdout):
                with contextlib.suppress(OSError):
                    pipe and pipe.close()
        self._running = None


def _started(seed: int, idle_secs: float) -> subprocess.Popen[bytes]:
    installed = [path for path in sys.path if {"site-packages", "dist-packages"} & set(Path(path).parts)]
    paths = json.dumps([str(ROOT.resolve()), *installed])
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    command = [sys.executable, "-s", "-P", "-c", _START, paths, str(idle_secs)]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
                                env={**environment, **_ELSEWHERE, "PYTHONHASHSEED": str(seed)})  # fmt: skip
    except OSError as error:
        raise StorageError("a process for checking functions cannot be started", value=str(error),
                           next_step="give this machine more memory or processes") from error  # fmt: skip


def write_message(stream: BinaryIO | Any, document: Message, payload: bytes) -> None:
    """Write a request or an answer: one line of JSON, then the payload."""
    stream.write(json.dumps({**document, "payload_bytes": len(payload)}).encode("ascii") + b"\n" + payload)
    stream.flush()


def _read(stream: BinaryIO | Any) -> tuple[Message, bytes]:
    """An answer, read from the file descriptor so that the time can be limited."""
    held = b""
    while b"\n" not in held:
        held += _some(stream.fileno())
    line, _, payload = held.partition(b"\n")
    document = json.loads(line)
    parts, missing = [payload], document["payload_bytes"] - len(payload)
    while missing > 0:
        parts.append(_some(stream.fileno()))
        missing -= len(parts[-1])
    return document, b"".join(parts)


def _some(fd: int) -> bytes:
    if not select.select([fd], [], [], _ANSWER_SECS)[0]:
        raise EOFError(f"it gave no answer in {_ANSWER_SECS:.0f} s")
    part = os.read(fd, _READ_BYTES)
    if not part:
        raise EOFError("it gave no answer")
    return part
