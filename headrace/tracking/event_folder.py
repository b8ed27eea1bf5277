"""The event files of a run: each process that trains it adds a file, with the points that no earlier file has."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from headrace.tracking.event_records import VERSION, Event, event_record, read_events
from headrace.tracking.points import COMMITS, WINDOWS, new_points
from trainer.run.history.run_history import RunHistory
from transforms.errors import StorageError

#: Names of event files begin so; TensorBoard reads those files of a folder in the order of their names.
_PREFIX: Final = "events.out.tfevents"
#: The end of the names of Headrace's.
_OWN: Final = ".headrace"


class EventFolder:
    """The event files of a run in ``folder``, which is made if it is absent.

    A point is one record, and a record that is not whole counts as none: so a run that is killed at any moment has each point once.

    Args:
        folder: of this run alone.
        now: epoch seconds.

    Raises :class:`StorageError` for a folder that cannot be written.
    """

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self._folder, self._now = folder, now
        self._path: Path | None = None
        with _translated(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                raise PermissionError(f"{folder} is not writable")
            self._known: dict[str, int] | None = self._read_known()

    @property
    def place(self) -> str:
        """The folder."""
        return str(self._folder)

    def add(self, history: RunHistory) -> int:
        """Write the points that are new in a history, and return their number.

        Where the run has gone on from an older commit, events after it become void first. Raises :class:`StorageError`; what was written then counts.
        """
        with _translated(self._folder):
            known = self._read_known() if self._known is None else self._known
            events = []
            if any(step > history.step for step in known.values()):
                events.append(Event(self._now(), history.step + 1, voids_later=True))
                known = {kind: min(step, history.step) for kind, step in known.items()}
            points = new_points(history, known)
            events += [Event(point.at_secs, point.step, point.values) for point in points]
            self._known = None
            if events:
                self._append(b"".join(map(event_record, events)))
            self._known = {**known, **{point.kind: point.step for point in points}}
        return len(points)

    def close(self) -> None:
        """Nothing is open."""

    def _append(self, records: bytes) -> None:
        """Write records durably, in a new file after one that may have a record that is not whole."""
        path, self._path = self._path, None
        if path is None:
            path = self._folder / self._new_name()
            records = event_record(Event(self._now(), version=VERSION)) + records
        with path.open("ab") as file:
            file.write(records)
            file.flush()
            os.fsync(file.fileno())
        self._path = path

    def _new_name(self) -> str:
        """A name after those of all files that are there."""
        seconds = int(self._now())
        taken = [int(path.name.split(".")[3]) for path in self._own_files()]
        return (
            f"{_PREFIX}.{max([seconds, *(one + 1 for one in taken)]):010d}.{socket.gethostname()}.{os.getpid()}{_OWN}"
        )

    def _own_files(self) -> list[Path]:
        found = self._folder.glob(f"{_PREFIX}.*{_OWN}")
        return sorted(path for path in found if path.name.split(".")[3].isdecimal())

    def _read_known(self) -> dict[str, int]:
        """The last step of each kind of point in the files that are there."""
        known = {WINDOWS: 0, COMMITS: 0}
        for event in self._read():
            if event.voids_later:
                known = {kind: min(step, event.step - 1) for kind, step in known.items()}
            for kind in known:
                if any(name.startswith(f"{kind}/") for name in event.scalars):
                    known[kind] = event.step
        return known

    def _read(self) -> Iterator[Event]:
        for path in self._own_files():
            yield from read_events(path.read_bytes())


class _translated:
    """Turns an :class:`OSError` about a folder into a :class:`StorageError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise StorageError("the event files of a run cannot be written", where=str(self._folder), value=error.strerror or str(error),
                               next_step="name another folder, or free disk space") from error  # fmt: skip
