"""The processes of a fleet's jobs on this machine: one ``headrace train`` a job, which supervises the processes of its roles."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer.job.launch.fleet import ProcessEnd
from trainer.job.launch.fleet_store import FleetStore, StoredJob
from transforms.child_process import child_environment
from transforms.errors import StorageError
from warehouse.storage.durable_files import make_folders

#: The command line of a job, whose process writes its result to the file, and ends with the process ``supervisor``.
JobCommand = Callable[[StoredJob, Path, int], list[str]]
_TAIL_BYTES = 4096
_MOST_REASON = 500
_MOST_RECORD_BYTES = 1 << 26


@dataclass
class _Running:
    stored: StoredJob
    process: subprocess.Popen[bytes]
    ends_by_secs: float | None = None


class LocalProcesses:
    """The processes of jobs on this machine. They end with the process that started them.

    Args:
        store: of the fleet: its folder has the outputs and results.
        command: the command line of a job.
        grace_secs: how long a process may take to end after a notice, or after a request to stop.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: FleetStore,
        command: JobCommand,
        *,
        grace_secs: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._command, self._grace_secs, self._clock = store, command, grace_secs, clock
        self._running: dict[int, _Running] = {}
        self._not_started: list[ProcessEnd] = []

    def start(self, stored: StoredJob) -> None:
        """Start the process of a job; its output is appended to the job's log."""
        number = stored.job.number
        log, record = self._store.log_path(number), self._store.record_path(number)
        for path in (log, record):
            make_folders(path.parent)
        record.unlink(missing_ok=True)
        own = stored.submission
        environment = child_environment({"HEADRACE_HOME": own.home} if own.home else {})
        try:
            with open(log, "ab") as output:
                process = subprocess.Popen(
                    self._command(stored, record, os.getpid()),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=own.folder,
                    env=environment,
                    start_new_session=True,  # Ctrl-C at the runner is not one of its jobs
                )
        except OSError as error:
            self._not_started.append(ProcessEnd(number, StorageError.exit_status, None, f"not started: {error}"))
            return
        self._running[number] = _Running(stored, process)

    def notice(self, number: int) -> None:
        """SIGTERM: the job commits and leaves."""
        self._signal(number, signal.SIGTERM)

    def stop(self, number: int) -> None:
        """SIGINT: the job stops after a commit."""
        self._signal(number, signal.SIGINT)

    def ended(self) -> list[ProcessEnd]:
        """The processes that ended; those that take too long to leave are killed."""
        found, self._not_started = self._not_started, []
        for number, one in list(self._running.items()):
            status = one.process.poll()
            if status is None:
                if one.ends_by_secs is not None and self._clock() > one.ends_by_secs:
                    self._kill(one)
                continue
            del self._running[number]
            found.append(ProcessEnd(number, status, self._is_finished(number), self._last_line(number)))
        return found

    def close(self) -> None:
        """Kill the processes that are left."""
        for one in self._running.values():
            self._kill(one)
            one.process.wait()

    def _signal(self, number: int, signal_number: int) -> None:
        one = self._running.get(number)
        if one is not None:
            one.process.send_signal(signal_number)
            one.ends_by_secs = self._clock() + self._grace_secs

    def _kill(self, one: _Running) -> None:
        with suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)

    def _is_finished(self, number: int) -> bool | None:
        try:
            with open(self._store.record_path(number), "rb") as file:
                found = json.loads(file.read(_MOST_RECORD_BYTES)).get("finished")
        except (OSError, ValueError, AttributeError):
            return None
        return found if isinstance(found, bool) else None

    def _last_line(self, number: int) -> str:
        """The line of the error at the end of a job's output, else its last line."""
        try:
            with open(self._store.log_path(number), "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        except OSError:
            return ""
        errors = [line for line in lines if line.startswith("error: ")]
        return (errors or lines or [""])[-1][:_MOST_REASON]
