"""The training jobs of a fleet: all of them, one, its states over time, its speed, and the end of its output."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headrace.runs.commit_speeds import CommitSpeed
    from headrace.runs.job_timeline import JobTimeline
    from headrace.screens.jobs import JobScreen, JobsScreen
    from trainer.job.launch.fleet_store import StoredJob

#: The folder of the fleet in a home.
FLEET = "fleet"
#: The lines of the end of an output, and the bytes in which they are looked for.
TAIL_LINES, TAIL_BYTES = 200, 1 << 18


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where the files of a fleet's job are.

    Attributes:
        run_dir: the folder of its checkpoints, or the location in a bucket; empty while it is unknown.
        folder: with the log of its events; None while it is unknown.
    """

    run_dir: str = ""
    folder: Path | None = None


#: Finds the files of a job by its command, whose options the command line knows.
FindPlace: TypeAlias = "Callable[[StoredJob], JobPlace]"


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of an output.

    Attributes:
        lines: its last lines; bytes that are no UTF-8 are replaced.
        is_cut: whether there is more before them.
    """

    lines: tuple[str, ...]
    is_cut: bool


def listed(folder: Path) -> JobsScreen:
    """The jobs of the fleet in a folder; none without one."""
    from headrace.screens.jobs import JobsScreen
    from trainer.job.launch.fleet_store import FleetStore

    store = FleetStore(folder)
    return JobsScreen(str(store.folder), store.jobs())


def shown(folder: Path, name: str, find_place: FindPlace) -> JobScreen:
    """The job of a number or a name in the fleet of a folder. Raises :class:`~transforms.errors.NotFound`, and as ``find_place``."""
    from trainer.job.launch.fleet_store import FleetStore

    return screen_of(folder, FleetStore(folder).find(name), find_place)


def screen_of(folder: Path, stored: StoredJob, find_place: FindPlace) -> JobScreen:
    """The screen of a job of the fleet in a folder. Raises as ``find_place``."""
    from headrace.screens.jobs import JobScreen
    from trainer.job.launch.fleet_store import FleetStore

    return JobScreen(stored, str(FleetStore(folder).log_path(stored.job.number)), find_place(stored).run_dir)


def timeline(folder: Path) -> JobTimeline | None:
    """The states over time of the job whose files are in a folder; None without a log. Raises as :func:`~headrace.runs.job_timeline.read_timeline`."""
    from headrace.runs.job_timeline import read_timeline
    from trainer.job.control.job_files import JobFiles

    return read_timeline(JobFiles(folder))


def speeds(run_dir: str, most: int) -> tuple[CommitSpeed, ...]:
    """The speed of a run up to its newest commits. Raises as :func:`~headrace.views.runs.plotted`."""
    from headrace.runs.commit_speeds import newest_speeds
    from headrace.runs.open_history import history_of
    from headrace.runs.trained_run import read_run

    return newest_speeds(history_of(read_run(run_dir)), most)


def log_tail(file: str, *, most_lines: int = TAIL_LINES, most_bytes: int = TAIL_BYTES) -> LogTail:
    """The last lines of the output in a file; none without one. Raises :class:`~transforms.errors.StorageError`."""
    from transforms.errors import StorageError

    try:
        with open(file, "rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            start = opened.seek(max(0, size - most_bytes))
            content = opened.read(most_bytes)
    except FileNotFoundError:
        return LogTail((), is_cut=False)
    except OSError as error:
        raise StorageError("the output of a job cannot be read", where=file, value=error.strerror) from None
    lines = content.decode("utf-8", "replace").split("\n")
    if not lines[-1]:
        lines.pop()
    if start and len(lines) > 1:
        del lines[0]  # its beginning may be missing
    return LogTail(tuple(lines[-most_lines:]), is_cut=start > 0 or len(lines) > most_lines)
