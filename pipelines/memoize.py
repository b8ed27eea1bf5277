"""The memoize job: many components over many fragments, each fragment read once.

    fragments of work ── Spread ── MemoizeFragments ──> results

An element is a fragment with every component that is wanted of it. One read of the raw columns, one compiled plan, one
memo file with a column a component; then a small result document, which is how the caller learns of it, whatever
machine it ran on. It happens in a child process, and a component that raises, explodes in memory, stalls or crashes costs no
other component anything (:mod:`pipelines.isolation`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import apache_beam as beam
from apache_beam.metrics import Metrics

from pipelines.beam_runner import RunnerOptions, run_pipeline
from pipelines.bundle_threads import BundleThreads
from pipelines.elements import Spread, Texts
from pipelines.errors import MemoizeFailed
from pipelines.fragment_work import ComponentList, FragmentResult, FragmentWork
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.memoizing import Notorious, memoize_isolated
from pipelines.isolation.processes import child_processes
from pipelines.remote_runners import require_reach
from pipelines.runners.error_documents import error_document, error_from_document, read_object
from pipelines.running_job import JobEnded, RunningJob, is_to_end
from transforms.errors import StorageError
from warehouse.own_files import kind_of
from warehouse.storage import Storage
from warehouse.storage_layout import JOBS

NAMESPACE = "headrace.memoize"
#: The steps of the pipeline, by label. Runners key their state and their metrics by these.
STEPS = ("Fragments", "Spread", "MemoizeFragments")


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(str)
class MemoizeFragments(BundleThreads):
    """:func:`~pipelines.isolation.memoizing.memoize_isolated`, its result written to ``jobs/<job>-<index>.json`` of the home, and counted."""

    def __init__(
        self, home: str, job: str, components: str, threads: int = 1, limits: IsolationLimits | None = None
    ) -> None:
        super().__init__(threads)
        self._home = home
        self._job = job
        self._components = components
        self._limits = limits or IsolationLimits()
        names = ("fragments", "rows", "raw_bytes_read", "memos", "components_failed")
        self._counters = {name: Metrics.counter(NAMESPACE, name) for name in names}

    def setup(self) -> None:
        """Begin to start processes, and see what this machine has for each."""
        child_processes().prepare()
        # A runner that has threads of its own works on about as many fragments at once as there are processors.
        self._resolved = self._limits.on_this_machine(max(self._threads, os.cpu_count() or 1))
        self._notorious = Notorious()

    def work(self, element: str) -> tuple[str, FragmentResult | None]:
        """One fragment of work in; the path of its result document, and the result if there is one.

        Raises :class:`JobEnded` in a process where that was asked for.
        """
        if is_to_end(self._job):
            raise JobEnded(self._job)
        index, _, text = element.partition(" ")
        storage = Storage(self._home)
        path = f"{JOBS}/{self._job}-{index}.json"
        result: FragmentResult | None = None
        try:
            result = memoize_isolated(text, self._home, child_processes(), self._resolved, self._notorious,
                                      self._components)  # fmt: skip
            document: Mapping[str, object] = {"result": result.to_document()}
        except StorageError as error:
            document = {"error": error_document(error)}
        storage.write_atomic(path, json.dumps(document, sort_keys=True).encode("utf-8"))
        return path, result

    def emit(self, result: tuple[str, FragmentResult | None]) -> list[str]:
        """The path of the result document."""
        path, written = result
        if written is not None:
            self._count(written)
        return [path]

    def _count(self, result: FragmentResult) -> None:
        failed = sum(1 for outcome in result.outcomes if outcome.failure)
        counted = {"fragments": 1, "rows": result.rows, "raw_bytes_read": result.raw_bytes_read,
                   "memos": len(result.outcomes) - failed, "components_failed": failed}  # fmt: skip
        for name, count in counted.items():
            self._counters[name].inc(count)


def build(
    pipeline: beam.Pipeline,
    works: Sequence[FragmentWork],
    home: str,
    job: str,
    threads: int = 1,
    limits: IsolationLimits | None = None,
) -> None:
    """The pipeline's shape. Every element is text (StrUtf8Coder: deterministic, no pickle).

    With several ``threads`` one step works on all fragments; else they are spread over the runner's workers. What the
    components are travels once, with the step: a service takes a job of some megabytes at most.
    """
    listed = ComponentList()
    elements = [f"{index:06d} {work.to_json(listed)}" for index, work in enumerate(works)]
    fragments = pipeline | "Fragments" >> Texts(elements)
    if threads == 1:
        fragments = fragments | "Spread" >> Spread()
    _ = fragments | "MemoizeFragments" >> beam.ParDo(MemoizeFragments(home, job, listed.to_json(), threads, limits))


class JobResults:
    """The results of a running job as they arrive on storage, each handed out once."""

    def __init__(self, storage: Storage, job: str, total: int) -> None:
        self._storage, self._job = storage, job
        self._seen: set[str] = set()
        self._errors: list[object] = []
        self.total = total
        #: The job itself: what attends to it may end it.
        self.running = RunningJob(job)

    def new(self) -> list[FragmentResult]:
        """Results that came since the last call. Raises the StorageError that a worker met, once no result is new."""
        results = []
        for file in self._storage.list(JOBS):
            if file.path in self._seen or not file.path.rpartition("/")[2].startswith(f"{self._job}-"):
                continue
            document = read_object(self._storage.read_bytes(file.path), file.path)
            self._seen.add(file.path)
            if "error" in document:
                self._errors.append(document["error"])
            else:
                results.append(FragmentResult.from_document(document.get("result")))
        if self._errors and not results:
            raise error_from_document(self._errors[0])
        return results

    @property
    def missing(self) -> int:
        """How many results have not come yet."""
        return self.total - len(self._seen)

    def remove(self) -> None:
        """Delete the result documents: what they said is in the catalog."""
        for path in self._seen:
            self._storage.delete(path)


def remove_abandoned_results(storage: Storage, before: float) -> int:
    """Delete result documents last written before ``before`` (seconds since the epoch): their workers were killed."""
    found = storage.walk(JOBS).files
    old = [file for file in found if file.mtime_ns < before * 1e9 and kind_of(file.path) == "job results"]
    return sum(storage.delete(file.path) for file in old)


#: Called with the job's results; what it returns is entered while the job runs.
Attendance = Callable[[JobResults], AbstractContextManager[object]]


def run_memoize(
    works: Sequence[FragmentWork],
    home: str,
    job: str,
    options: RunnerOptions | None = None,
    attend: Attendance = nullcontext,
    limits: IsolationLimits | None = None,
) -> tuple[FragmentResult, ...]:
    """Run the job named ``job`` (a name never used before) and return the results that ``attend`` did not take.

    Raises :class:`~transforms.errors.StorageError` when a memo could not be written, :class:`MemoizeFailed` when a
    fragment has no result, :class:`~transforms.errors.InputError` when the runner's workers cannot reach a fragment, and
    what the runner raises.
    """
    if not works:
        return ()
    chosen, storage = options or RunnerOptions(), Storage(home)
    require_reach(chosen, home, *(work.fragment.path for work in works))
    results = JobResults(storage, job, len(works))
    with attend(results):
        run_pipeline(lambda pipeline: build(pipeline, works, home, job, chosen.threads, limits), chosen, one_step=True,
                     job=results.running)  # fmt: skip
    last = tuple(results.new())
    if results.missing:
        raise MemoizeFailed("a memoize job ended without all of its results", where=f"job {job}",
                            value=f"{results.missing} of {len(works)} fragments",
                            next_step="see the runner's log; the tasks stay queued")  # fmt: skip
    return last
