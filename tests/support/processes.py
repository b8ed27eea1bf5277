"""Starts, watches and kills processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

#: How long a test waits for what must happen: longer than any machine stalls, shorter than the time limit of a test.
PATIENCE_SECS = 300.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("localhost", port)) == 0


def wait_until(happened: Callable[[], bool], what: str, alive: Mapping[str, subprocess.Popen[Any]]) -> None:
    """Wait for an event, however slow the machine; fail at once when a process that it needs has ended."""
    deadline = time.monotonic() + PATIENCE_SECS
    while not happened():
        for name, process in alive.items():
            assert process.poll() is None, f"{name} ended while waiting until {what}"
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECS:.0f} s until {what}"
        time.sleep(0.1)


def start(command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A process that leads a group of its own, so that what it starts can be ended with it."""
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                start_new_session=True, env={**os.environ, **(environment or {})})  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything of its group that still runs, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def groups() -> dict[int, int]:
    """The group of every process of this machine that has not ended."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, group = status.read_text().rpartition(")")[2].split()[:3]
            if state != "Z":
                found[int(status.parent.name)] = int(group)
    return found


def group_of(process: subprocess.Popen[bytes]) -> set[int]:
    """The processes of the group that ``process`` leads, or led, which have not ended."""
    return {member for member, group in groups().items() if group == process.pid}
