"""The jobs of a fleet in a folder: one JSON document a job, replaced atomically under a lock."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.checkpoints.manifest import canonical_json, parse_json
from trainer.errors import TornCheckpoint
from trainer.job.control.job_files import replace_file
from trainer.options.document_field import DocumentField
from trainer.scheduling.documents import read_value, value_document
from trainer.scheduling.fleet import ENDED, FleetJob
from transforms.errors import DataError, InputError, NotFound, StorageError, nearest
from transforms.names import check_name
from warehouse.storage.durable_files import make_folders

FORMAT = "headrace.fleet/1"
_MOST_BYTES = 1 << 20
_FILE = re.compile(r"([0-9]{6,12})\.json\Z", re.ASCII)
#: The most characters of a job's name.
_MOST_NAME = 64


@dataclass(frozen=True, slots=True)
class Submission:
    """What a person submits.

    Attributes:
        name: of the job; a letter first.
        slots: that it takes.
        priority: a higher one runs first.
        arguments: of ``headrace train``.
        folder: the working folder of its process.
        home: the warehouse's home.
        run_dir: the folder of its checkpoints; empty until it is known.
    """

    name: str
    slots: int
    priority: int
    arguments: tuple[str, ...]
    folder: str
    home: str
    run_dir: str = ""

    def __post_init__(self) -> None:
        check_name(self.name, "a job", where="--name", most=_MOST_NAME)
        if not self.name[0].isalpha():  # a number is that of a job
            raise InputError("the name of a job must begin with a letter", where="--name", value=self.name)
        if not 1 <= self.slots <= 1_000_000:
            raise InputError("a job must take at least one slot", where="--slots", value=self.slots)
        if abs(self.priority) > 1_000_000:
            raise InputError("a priority must be in the allowed range", where="--priority", value=self.priority,
                             allowed="-1,000,000 to 1,000,000")  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A document of the fleet.

    Attributes:
        format: of the document.
        job: as the scheduler sees it.
        submission: what was submitted.
        submitted_secs: when, in epoch seconds.
        changed_secs: when its state changed last, in epoch seconds.
    """

    format: str
    job: FleetJob
    submission: Submission
    submitted_secs: float
    changed_secs: float


class FleetStore:
    """The jobs of a fleet. Any number of processes may use it at once; a killed one leaves each job as it was or as it will be.

    ``folder``: of the fleet. ``clock``: epoch seconds.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = folder, clock

    def log_path(self, number: int) -> Path:
        """The output of a job's processes."""
        return self.folder / "logs" / f"{number:06d}.log"

    def record_path(self, number: int) -> Path:
        """The result of a job's last process."""
        return self.folder / "results" / f"{number:06d}.json"

    def submit(self, submission: Submission) -> StoredJob:
        """Add a job to the queue. Raises :class:`InputError` for the name of a job that has not ended."""
        with self._locked():
            jobs = self.jobs()
            if any(one.job.name == submission.name and one.job.state not in ENDED for one in jobs):
                raise InputError("a job of this name has not ended yet", where="--name",
                                 value=submission.name)  # fmt: skip
            number = max((one.job.number for one in jobs), default=0) + 1
            now = self._clock()
            job = FleetJob(number, submission.name, submission.slots, submission.priority)
            stored = StoredJob(FORMAT, job, submission, now, now)
            self._write(stored)
        return stored

    def jobs(self) -> tuple[StoredJob, ...]:
        """All jobs, by number. Raises :class:`DataError` for a damaged document."""
        try:
            names = sorted(name for name in os.listdir(self._jobs) if _FILE.match(name))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StorageError("a fleet cannot be read", where=str(self._jobs), value=error.strerror) from None
        return tuple(self._read(self._jobs / name) for name in names)

    def find(self, name: str) -> StoredJob:
        """The job of a number, or the newest of a name. Raises :class:`NotFound`."""
        jobs = self.jobs()
        for one in reversed(jobs):
            if name in (one.job.name, str(one.job.number)):
                return one
        raise NotFound("the fleet has no such job", where=str(self.folder), value=name,
                       allowed=nearest(name, {one.job.name for one in jobs}))  # fmt: skip

    def update(self, number: int, change: Callable[[FleetJob], FleetJob]) -> StoredJob:
        """Replace a job by ``change`` of it, which may raise: then nothing is changed."""
        with self._locked():
            before = self._read(self._place(number))
            job = change(before.job)
            if job == before.job:
                return before
            moved = before.changed_secs if job.state is before.job.state else self._clock()
            after = replace(before, job=job, changed_secs=moved)
            self._write(after)
        return after

    @property
    def _jobs(self) -> Path:
        return self.folder / "jobs"

    def _place(self, number: int) -> Path:
        return self._jobs / f"{number:06d}.json"

    def _write(self, stored: StoredJob) -> None:
        replace_file(self._place(stored.job.number), canonical_json(value_document(stored)))

    def _read(self, path: Path) -> StoredJob:
        try:
            with open(path, "rb") as file:
                content = file.read(_MOST_BYTES)
        except FileNotFoundError:
            raise NotFound("the fleet has no such job", where=str(path)) from None
        except OSError as error:
            raise StorageError("a job of a fleet cannot be read", where=str(path), value=error.strerror) from None
        try:
            stored: StoredJob = read_value(StoredJob, DocumentField(parse_json(content, str(path)), str(path)))
        except (TornCheckpoint, InputError) as error:
            raise _damaged(path, error.what) from None
        if stored.format != FORMAT or path != self._place(stored.job.number):
            raise _damaged(path, f"format {stored.format[:40]}, number {stored.job.number}")
        return stored

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time changes jobs; the system releases the lock of a process that ends."""
        try:
            make_folders(self._jobs)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StorageError("the folder of a fleet cannot be used", where=str(self.folder), value=error.strerror,
                               next_step="choose another one with --fleet, or fix its permissions") from None  # fmt: skip
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _damaged(path: Path, value: str) -> DataError:
    return DataError("a job of a fleet must be a document as it was written", where=str(path), value=value,
                     next_step="move the file away and submit the job again")  # fmt: skip
