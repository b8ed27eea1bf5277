"""Controllers in processes of their own, forked from one that has loaded everything: they are killed at chosen points.

A line on standard input starts a controller, and a line on standard output gives its process id; then, in another thread of
tests, its end is read from the second line: the status that the system reports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path

from tests.support.processes import PATIENCE_SECS
from trainer.job.control.controller import ControllerSettings
from trainer.job.control.event_log import EventLog
from trainer.job.control.job_files import JobFiles
from trainer.job.control.open_controller import open_controller
from trainer.scheduling.events import DataRange
from trainer.scheduling.job import JobSettings, PhaseSettings
from trainer.scheduling.orders import Commit, Publish
from transforms.errors import DataError, HeadraceError
from warehouse.scheduling.backoff import Backoff

JOB = "small"


def job_settings(**options) -> JobSettings:
    """Settings for a job that begins again soon after a failure."""
    base = {"lost_secs": 120.0, "most_step_secs": 0.5, "backoff": Backoff(0.05, 0.2, jitter=0.0), "most_restarts": 20,
            "initial": PhaseSettings(least_readers=1)}  # fmt: skip
    return JobSettings(**{**base, **options})


class FolderPublisher:
    """Publishes a commit as one file, which is renamed into place; ``newest`` reads them."""

    def __init__(self, folder: Path, on_point=lambda point: None) -> None:
        self.folder, self._on_point = folder, on_point

    def publish(self, order: Publish) -> None:
        self.folder.mkdir(exist_ok=True)
        content = json.dumps({"attempt": order.attempt, "commit": [order.commit.epochs, order.commit.attempt, order.commit.next_unit],
                              "hosts": order.hosts, "parts": dict(order.parts)}, sort_keys=True)  # fmt: skip
        path = self.folder / f"epoch-{order.commit.epochs:06d}"
        if path.exists():
            if path.read_text() != content:
                raise DataError("another commit has this place", where=str(path))
            return
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(content)
        self._on_point("before rename")
        os.rename(new, path)
        self._on_point("after rename")

    def commits(self) -> list[Publish]:
        found = [json.loads(path.read_text()) for path in sorted(self.folder.glob("epoch-*"))]
        return [Publish(one["attempt"], Commit(*one["commit"]), tuple(one["hosts"]), one["parts"]) for one in found]


def run_controller(options: dict) -> None:
    """Run a controller; it kills itself when it reaches a point for the given time."""
    counts: Counter[str] = Counter()
    crash = tuple(options.get("crash") or ())

    def on_point(point: str) -> None:
        counts[point] += 1
        if crash and (point, counts[point]) == (crash[0], crash[1]):
            os.kill(os.getpid(), signal.SIGKILL)

    run_dir = Path(options["run_dir"])
    stops = tuple(options["stops"])
    publisher = FolderPublisher(run_dir / "commits", on_point)
    files = JobFiles(run_dir)
    files.make_token()
    with open_controller(
        files,
        job_settings(**options.get("settings", {})),
        publisher,
        controller_settings=ControllerSettings(job=JOB, tick_secs=0.1),
        data=DataRange("plan", stops[-1], stops),
        on_point=on_point,
        make_log=partial(EventLog, most_bytes=options.get("log_bytes", 1 << 20)),
    ) as (controller, _):
        controller.run()


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                run_controller(json.loads(line))
            except HeadraceError as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(error.exit_status)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(70)
            os._exit(0)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


class ControllerProcesses:
    """Starts controllers, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "tests.trainer.job.control.controller_process"],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
        self.process_id = 0

    def start(self, **options) -> None:
        assert self._process.stdin is not None
        print(json.dumps(options), file=self._process.stdin, flush=True)
        self.process_id = int(self._line())

    def wait(self) -> int:
        """The exit status, negative for a signal."""
        watchdog = threading.Timer(PATIENCE_SECS, self.kill)
        watchdog.start()
        try:
            return os.waitstatus_to_exitcode(int(self._line()))
        finally:
            self.process_id = 0
            watchdog.cancel()

    def kill(self) -> None:
        if self.process_id:
            os.kill(self.process_id, signal.SIGKILL)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __enter__(self) -> ControllerProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE_SECS)


if __name__ == "__main__":
    main()
