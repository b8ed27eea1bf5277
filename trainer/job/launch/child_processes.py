"""The processes of a job that one process starts on its machine: started again after a wait, and ended with it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM

from trainer.job.launch.role_signals import LEFT_STATUS
from transforms.child_process import child_environment
from warehouse.scheduling.backoff import Backoff

#: The command line of a role's process: its kind, its name, and options.
Command = Callable[[str, str, Sequence[str]], list[str]]
#: A process that ran for so long begins with the first wait again.
_LONG_SECS = 10.0
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process of a job and its kind: controller, reader or host."""

    kind: str
    process: subprocess.Popen[bytes]


@dataclass
class Child:
    """A place for a process, and the process in it.

    Attributes:
        kind, name: of the role.
        process: that runs; None between two.
        began_secs: when it was started.
        failures: processes that failed one after another.
        not_before_secs: when the next one may be started.
        was_killed: the last one was ended by a signal.
        is_ending: the process was asked to end.
    """

    kind: str
    name: str
    process: subprocess.Popen[bytes] | None = None
    began_secs: float = 0.0
    failures: int = 0
    not_before_secs: float = 0.0
    was_killed: bool = False
    is_ending: bool = False


class ChildProcesses:
    """The processes of a job on this machine.

    Args:
        logs: the folder of their logs, one a name.
        command: the command line of a process.
        backoff: the waits before a process is started again.
        on_message: called with a sentence about a process that ended.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        logs: Path,
        command: Command,
        backoff: Backoff,
        on_message: Callable[[str], None] = lambda message: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logs, self._command, self._backoff = logs, command, backoff
        self._on_message, self._clock = on_message, clock
        self._children: dict[tuple[str, str], Child] = {}

    def child(self, kind: str, name: str) -> Child:
        """The place of a role; a new one if there is none."""
        return self._children.setdefault((kind, name), Child(kind, name))

    def children(self) -> tuple[Child, ...]:
        """All places. Any thread may call it."""
        return tuple(self._children.values())

    def running(self) -> dict[str, RunningProcess]:
        """The processes that run now, by name. Any thread may call it."""
        found = {one.name: RunningProcess(one.kind, one.process) for one in self.children() if one.process}
        return {name: one for name, one in found.items() if one.process.poll() is None}

    def start(self, child: Child, options: Sequence[str] = ()) -> None:
        """Start a process, which ends with this one."""
        path = self.log_path(child)
        path.parent.mkdir(parents=True, exist_ok=True)
        arguments = [*self._command(child.kind, child.name, options), "--supervisor", str(os.getpid())]
        with open(path, "ab") as log:
            child.process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=child_environment()
            )
        child.began_secs = self._clock()

    def reap(self, child: Child) -> bool:
        """Note the end of a process; whether one may be started now."""
        process = child.process
        if process is not None and process.poll() is not None:
            child.process = None
            if process.returncode not in (0, LEFT_STATUS):
                if self._clock() - child.began_secs > _LONG_SECS:
                    child.failures = 0
                child.failures += 1
                child.was_killed = process.returncode < 0
                child.not_before_secs = self._clock() + self._backoff.wait_secs(child.failures, 1.0)
                self._on_message(
                    f"{child.kind} {child.name} ended with status {process.returncode}: {self.last_line(child)}"
                )
        return self._clock() >= child.not_before_secs

    def end_all(self, end_secs: float) -> None:
        """End all processes: first by asking, then by killing those that take longer than ``end_secs``."""
        for number in (SIGTERM, SIGKILL):
            until = self._clock() + end_secs
            running = [one.process for one in self.children() if one.process is not None]
            for process in running:
                if process.poll() is None:
                    process.send_signal(number)
            for process in running:
                try:
                    process.wait(max(0.1, until - self._clock()))
                except subprocess.TimeoutExpired:
                    continue

    def log_path(self, child: Child) -> Path:
        """The log of a role's processes."""
        return self._logs / f"{child.name}.log"

    def last_line(self, child: Child) -> str:
        """The last line of a role's log."""
        try:
            with open(self.log_path(child), "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                lines = log.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
