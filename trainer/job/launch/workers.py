"""The readers and hosts of a job: processes of this machine, or of others."""

from __future__ import annotations

import signal
from typing import Protocol

from trainer.job.control.messages import JobStatus
from trainer.job.launch.child_processes import ChildProcesses


class Workers(Protocol):
    """The readers and hosts of a job, for its supervisor."""

    def follow(self, status: JobStatus, *, is_leaving: bool) -> None:
        """Start and end processes by what the controller wants; ``is_leaving``: after a preemption notice for the job."""
        ...

    def are_gone(self, status: JobStatus) -> bool:
        """Whether none is left."""
        ...

    @property
    def wait_while_held(self) -> bool:
        """Whether the supervisor of a held job waits for its release; else it ends."""
        ...


class LocalWorkers:
    """Readers and hosts that are processes of this machine."""

    wait_while_held = False

    def __init__(self, processes: ChildProcesses) -> None:
        self._processes = processes

    def follow(self, status: JobStatus, *, is_leaving: bool) -> None:
        """Start the wanted processes, and end unwanted readers; hosts leave by order."""
        wanted: set[tuple[str, str]] = set()
        if not is_leaving:
            wanted |= {("host", f"h{k}") for k in range(status.wanted_hosts)}
            wanted |= {("reader", f"r{k}") for k in range(status.wanted_readers)}
        for key in wanted:
            child = self._processes.child(*key)
            child.is_ending = False
            if self._processes.reap(child) and child.process is None:
                self._processes.start(child)
        for child in self._processes.children():
            if (child.kind, child.name) in wanted or child.kind not in _KINDS:
                continue
            self._processes.reap(child)
            if child.process is not None and child.kind == "reader" and not child.is_ending:
                child.is_ending = True
                child.process.send_signal(signal.SIGTERM)

    def are_gone(self, status: JobStatus) -> bool:
        """Whether no process runs."""
        return not any(one.process is not None for one in self._processes.children() if one.kind in _KINDS)


_KINDS = ("host", "reader")
