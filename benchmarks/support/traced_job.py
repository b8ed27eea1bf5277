"""``headrace`` with the moments of its work in a file: ``python -m benchmarks.support.traced_job FILE ARGUMENT …``.

The processes of a training job, which it starts, are traced too. A line is a name and epoch seconds; a process appends it at once.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.support.started_roles import start_roles_by


def read_trace(file: Path) -> list[tuple[str, float]]:
    """The moments so far, in the order of time."""
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    return sorted(((name, at) for name, at in map(json.loads, lines)), key=lambda one: one[1])


def _writer(file: str) -> Callable[[str], None]:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(name: str) -> None:
        os.write(descriptor, (json.dumps([name, time.time()]) + "\n").encode("ascii"))

    return write


def _trace(owner: Any, method: str, write: Callable[[str], None], *, before: str = "", after: str = "") -> None:
    """Write a moment before a method, and one after it if it returned something else than None."""
    inner = getattr(owner, method)

    @functools.wraps(inner)
    def traced(*arguments: Any, **options: Any) -> Any:
        if before:
            write(before)
        found = inner(*arguments, **options)
        if after and found is not None:
            write(after)
        return found

    setattr(owner, method, traced)


def _trace_supervisor(file: str, write: Callable[[str], None]) -> None:
    import headrace.cli.training_jobs as jobs
    from trainer.serving.deltas import commit_exporter

    start_roles_by("benchmarks.support.traced_job", file)
    _trace(jobs._Job, "_check_memos", write, before="new data seen")
    _trace(jobs._Job, "_find_more", write, after="plan made")
    _trace(jobs, "_prepare_unlocked", write, before="read solution made")
    _trace(commit_exporter, "export_next", write, before="link begun", after="link renamed")


def _trace_controller(write: Callable[[str], None]) -> None:
    from trainer.job.launch.checkpoint_publisher import CheckpointPublisher

    inner = CheckpointPublisher.publish

    def publish(self: CheckpointPublisher, order: Any) -> None:
        inner(self, order)
        write("commit published")

    CheckpointPublisher.publish = publish  # type: ignore[method-assign]


def _trace_reader(write: Callable[[str], None]) -> None:
    from trainer.run.reading.unit_reader import UnitReader

    _trace(UnitReader, "read", write, after="inputs read")


def _trace_host(write: Callable[[str], None]) -> None:
    from trainer.job.host.attempt import Attempt
    from trainer.job.host.snapshots import Snapshot

    inner = Attempt._count

    def count(self: Any, segment: Any, trained: Any) -> None:
        inner(self, segment, trained)
        write("row trained")

    Attempt._count = count  # type: ignore[method-assign]
    _trace(Attempt, "run", write, before="attempt begun")
    _trace(Snapshot, "write", write, after="part written")


def main() -> int:
    """Run the command."""
    from headrace.cli.main import run

    file, *arguments = sys.argv[1:]
    write = _writer(file)
    kind = arguments[1] if arguments[0] == "role" else ""
    if kind == "host":
        _trace_host(write)
    elif kind == "reader":
        _trace_reader(write)
    elif kind == "controller":
        _trace_controller(write)
    else:
        _trace_supervisor(file, write)
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
