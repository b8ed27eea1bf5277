"""Deliver the results of a memoize job to the process that commits them.

A step in the committing process delivers in memory. A step in another process writes ``jobs/<job>-<index>.json`` in the home,
which the committing process lists.
"""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from pipelines.fragments.encoded_result import decode_line
from pipelines.fragments.work import FragmentResult
from pipelines.runners.running_job import RunningJob
from transforms.errors import StorageError
from warehouse.files.own_files import kind_of
from warehouse.storage.layout import JOBS
from warehouse.storage.storage import Storage

# A commit costs as much as some fragments, and a killed worker loses this much time.
_COLLECT_SECS = 1.0
# Every listing of a bucket is billed.
_COLLECT_SECS_BUCKET = 2.0


class JobResults:
    """The results of a running job as they arrive, each returned once, also if a step is retried.

    Attributes:
        total: The number of results of the job.
        running: The job, which another thread can end.
        collect_secs: The period of calls of :meth:`new`.
    """

    def __init__(self, storage: Storage, job: str, total: int, *, in_process: bool = False) -> None:
        """With ``in_process`` all steps run in this process, so no result is written to storage."""
        self._storage, self._job, self._in_process = storage, job, in_process
        self._lock = threading.Lock()
        self._put: list[tuple[str, bytes]] = []
        self._seen: set[str] = set()
        self._files: list[str] = []
        self._errors: list[StorageError] = []
        self.total = total
        self.running = RunningJob()
        self.collect_secs = _COLLECT_SECS if in_process or storage.is_local else _COLLECT_SECS_BUCKET
        _AWAITED[job] = self

    def put(self, name: str, line: bytes) -> None:
        """Add a result from any thread of this process."""
        with self._lock:
            self._put.append((name, line))

    def new(self) -> list[FragmentResult]:
        """The results since the last call. Raises the StorageError of a step if there is no new result."""
        results = []
        for name, line, where in [*self._from_files(), *self._from_memory()]:
            if name in self._seen:
                continue
            self._seen.add(name)
            try:
                results.append(decode_line(line, where))
            except StorageError as error:
                self._errors.append(error)
        if self._errors and not results:
            raise self._errors[0]
        return results

    def _from_memory(self) -> list[tuple[str, bytes, str]]:
        with self._lock:
            put, self._put = self._put, []
        return [(name, line, f"result {name}") for name, line in put]

    def _from_files(self) -> list[tuple[str, bytes, str]]:
        if self._in_process:
            return []
        listed = (file.path for file in self._storage.list(JOBS))
        named = ((_name_of(path), path) for path in listed)
        fresh = [(name, path) for name, path in named if name.startswith(f"{self._job}-") and name not in self._seen]
        read = [(name, self._storage.read_bytes(path), path) for name, path in fresh]
        self._files += [path for _, path in fresh]
        return read

    @property
    def missing(self) -> int:
        """The number of results that have not arrived."""
        return self.total - len(self._seen)

    def remove(self) -> None:
        """Delete the results that arrived as files; the catalog has their content."""
        for path in self._files:
            self._storage.delete(path)


_AWAITED: WeakValueDictionary[str, JobResults] = WeakValueDictionary()


def local_results(job: str) -> JobResults | None:
    """The results of a job that this process waits for; None in any other process."""
    return _AWAITED.get(job)


def deliver(storage: Storage, job: str, index: str, line: bytes) -> str:
    """Deliver a fragment's result to the process that waits for the job; returns its name.

    The name depends on job and fragment only, so a retried step delivers nothing new.
    """
    name = f"{job}-{index}"
    results = local_results(job)
    if results is None:
        storage.write_atomic(f"{JOBS}/{name}.json", line)
    else:
        results.put(name, line)
    return name


def _name_of(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json")


def remove_abandoned_results(storage: Storage, before: float) -> int:
    """Delete result files last written before ``before`` (seconds since the epoch): their workers were killed."""
    found = storage.walk(JOBS).files
    old = [file for file in found if file.mtime_ns < before * 1e9 and kind_of(file.path) == "job results"]
    return sum(storage.delete(file.path) for file in old)
