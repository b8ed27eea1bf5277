"""The results of a memoize job on their way to the process that commits them.

Where that process runs the steps itself, a result is handed over in memory. A step in another process writes it to
``jobs/<job>-<index>.json`` of the home, which the committing process lists.
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

# A commit has fixed costs of some fragments, and a kill loses no more than this.
_COLLECT_SECS = 1.0
# A bucket bills every listing.
_COLLECT_SECS_BUCKET = 2.0


class JobResults:
    """The results of a running job as they arrive, each handed out once, however often a step is tried again.

    Attributes:
        total: How many results the job has.
        running: The job itself, which can be ended from another thread.
        collect_secs: How long to wait between two calls of :meth:`new`.
    """

    def __init__(self, storage: Storage, job: str, total: int, *, in_process: bool = False) -> None:
        """``in_process``: all steps run in this process, so that nothing arrives on storage."""
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
        """Hand over the result of this name. For any thread of this process."""
        with self._lock:
            self._put.append((name, line))

    def new(self) -> list[FragmentResult]:
        """Results that came since the last call. Raises the StorageError that a step met, once no result is new."""
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
        """How many results have not come yet."""
        return self.total - len(self._seen)

    def remove(self) -> None:
        """Delete the results that came as files: what they said is in the catalog."""
        for path in self._files:
            self._storage.delete(path)


_AWAITED: WeakValueDictionary[str, JobResults] = WeakValueDictionary()


def local_results(job: str) -> JobResults | None:
    """The results of a job that this process waits for; None in any other process."""
    return _AWAITED.get(job)


def deliver(storage: Storage, job: str, index: str, line: bytes) -> str:
    """Pass a fragment's result on to the process that waits for the job; the result's name.

    The name is a function of job and fragment, so a step that is tried again delivers nothing more.
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
