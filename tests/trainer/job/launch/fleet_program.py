"""Small programs for the tests of a fleet: ``job KIND RECORD SUPERVISOR [SECS]``, ``run FOLDER SLOTS``, ``submit FOLDER COUNT``."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from trainer.job.launch.fleet_run import run_fleet
from trainer.job.launch.fleet_store import FleetStore, StoredJob, Submission
from trainer.job.launch.role_signals import end_with_supervisor


def submission(name: str, *arguments: str, slots: int = 1, priority: int = 0) -> Submission:
    return Submission(name, slots, priority, arguments, os.getcwd(), "")


def command(stored: StoredJob, record: Path, supervisor: int) -> list[str]:
    """The command of a job whose first argument is its kind."""
    return [sys.executable, __file__, "job", stored.submission.arguments[0], str(record), str(supervisor),
            *stored.submission.arguments[1:]]  # fmt: skip


def job(kind: str, record: str, supervisor: str, *more: str) -> int:
    """A job of a kind: ``done``, ``held``, ``wrong``, ``away``, or ``lasting``, which leaves at SIGTERM and stops at SIGINT."""
    end_with_supervisor(int(supervisor))
    over: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, frame: over.append(got))
    print(f"{kind} runs as {os.getpid()}", flush=True)
    if kind == "lasting":
        while not over:
            time.sleep(0.02)
    if kind == "stubborn":
        time.sleep(60)
    if kind in ("done", "lasting"):
        Path(record).write_text(json.dumps({"finished": kind == "done"}))
        return 0
    print(f"error: this job is {kind}", file=sys.stderr)
    return {"held": 7, "wrong": 2, "away": 6}[kind]


def main(what: str, *arguments: str) -> int:
    if what == "job":
        return job(*arguments)
    store = FleetStore(Path(arguments[0]))
    if what == "submit":
        for number in range(int(arguments[1])):
            print(store.submit(submission(f"p{os.getpid()}-{number}", "done")).job.number, flush=True)
        return 0
    run_fleet(store, int(arguments[1]), command, until_idle=False, is_held=lambda stored: True,
              on_change=lambda stored: print(stored.job.name, stored.job.state, flush=True))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
