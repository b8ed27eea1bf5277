"""Runs and holds that were read before: each is read again when its files have changed."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from headrace.runs.trained_run import TrainedRun, read_run
from trainer.checkpoints.run_files import CHECKPOINTS
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.holds import find_hold
from trainer.scheduling.orders import Hold

#: The most runs that are remembered; then the one that was asked for least lately is forgotten.
MOST_KNOWN = 2_000
#: A folder that changed so short a time ago may change again at the same time of its file system.
_SETTLED_SECS = 2.0

_T = TypeVar("_T")
#: The time, size and number of a file.
_Stamp = tuple[int, int, int]


class _Known(Generic[_T]):
    """What was read of places, with the stamps of their files. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[str, tuple[tuple[_Stamp, ...], _T]] = OrderedDict()

    def get(self, place: str, stamps: tuple[_Stamp, ...], read: Callable[[], _T]) -> _T:
        """What is read of a place; an error of ``read`` is not remembered."""
        with self._lock:
            known = self._found.get(place)
            if known is not None and known[0] == stamps:
                self._found.move_to_end(place)
                return known[1]
        found = read()
        with self._lock:
            self._found[place] = stamps, found
            self._found.move_to_end(place)
            while len(self._found) > MOST_KNOWN:
                self._found.popitem(last=False)
        return found


class KnownRuns:
    """Reads local runs for a list, and each again when it has another commit. ``clock``: epoch seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._known = _Known[TrainedRun]()

    def read(self, folder: str) -> TrainedRun:
        """The run in a folder. Raises as :func:`~headrace.runs.trained_run.read_run`."""
        stamp = _stamp(Path(folder) / CHECKPOINTS)
        if stamp is None or self._clock() - stamp[0] / 1e9 < _SETTLED_SECS:
            return read_run(folder)
        return self._known.get(folder, (stamp,), lambda: read_run(folder))


class KnownHolds:
    """Finds the holds of jobs, and reads the log of each again when it has changed."""

    def __init__(self) -> None:
        self._known = _Known[Hold | None]()

    def find(self, files: JobFiles) -> Hold | None:
        """The hold of a run's job. Raises as :func:`~trainer.job.launch.holds.find_hold`."""
        stamps = _stamp(files.log), _stamp(files.spec)
        if stamps[0] is None or stamps[1] is None:
            return find_hold(files)
        return self._known.get(str(files.root), (stamps[0], stamps[1]), lambda: find_hold(files))


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
