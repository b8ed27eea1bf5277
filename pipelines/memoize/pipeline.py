"""The memoize job: many components over many fragments, each fragment read once.

    fragments of work ── Redistribute ── MemoizeFragments ──> results

An element is a fragment with all its components to compute: one read of the raw columns, one compiled plan, one memo file
with a column per component. The result is delivered to the caller (:mod:`pipelines.memoize.job_results`). A fragment is computed
in a child process, so a component that raises, exhausts memory, stalls or crashes fails alone (:mod:`pipelines.isolation`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import apache_beam as beam
from apache_beam.metrics import Metrics

from pipelines.errors import MemoizeFailed
from pipelines.fragments.encoded_result import ResultCounts, encode_error
from pipelines.fragments.work import ComponentList, FragmentResult, FragmentWork
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.memoizing import KnownCulprits, memoize_isolated
from pipelines.isolation.processes import child_processes
from pipelines.memoize.job_results import JobResults, deliver, local_results
from pipelines.runners.bundle_threads import BundleThreads
from pipelines.runners.elements import CreateStrings, Redistribute
from pipelines.runners.remote import require_reach
from pipelines.runners.runner import RunnerOptions, run_pipeline
from pipelines.runners.running_job import JobEnded
from transforms.errors import StorageError
from transforms.tracing.spans import span
from warehouse.storage.storage import Storage

NAMESPACE = "headrace.memoize"
#: The labels of the steps, the keys of runners' states and metrics.
STEPS = ("Fragments", "Redistribute", "MemoizeFragments")


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(str)
class MemoizeFragments(BundleThreads):
    """:func:`~pipelines.isolation.memoizing.memoize_isolated`, its result delivered and counted."""

    def __init__(
        self, home: str, job: str, components: str, threads: int = 1, limits: IsolationLimits | None = None
    ) -> None:
        super().__init__(threads)
        self._home = home
        self._job = job
        self._components = components
        self._limits = limits or IsolationLimits()
        self._fragments = Metrics.counter(NAMESPACE, "fragments")
        self._counters = [Metrics.counter(NAMESPACE, name) for name in ResultCounts._fields]

    def setup(self) -> None:
        """Start the child processes' server, and resolve the limits for this machine."""
        child_processes().expect_work()
        # A runner with its own threads computes about one fragment per processor at once.
        self._resolved = self._limits.on_this_machine(max(self._threads, os.cpu_count() or 1))
        self._known_culprits = KnownCulprits()

    def work(self, element: str) -> tuple[str, ResultCounts | None]:
        """Compute a fragment; the name of its result, and its counts unless it is an error.

        Raises :class:`JobEnded` if the end of the job was requested in this process.
        """
        awaited = local_results(self._job)
        if awaited is not None and awaited.running.end_requested:
            raise JobEnded(self._job)
        index, _, text = element.partition(" ")
        counts: ResultCounts | None = None
        try:
            with span("fragment", number=index):
                result = memoize_isolated(
                    text, self._home, child_processes(), self._resolved, self._known_culprits, self._components
                )
            line, counts = result.line, result.counts
        except StorageError as error:
            line = encode_error(error)
        return deliver(Storage(self._home), self._job, index, line), counts

    def emit(self, result: tuple[str, ResultCounts | None]) -> list[str]:
        """The result's name."""
        name, counts = result
        if counts is not None:
            self._fragments.inc()
            for counter, count in zip(self._counters, counts, strict=True):
                counter.inc(count)
        return [name]


def build(
    pipeline: beam.Pipeline,
    works: Sequence[FragmentWork],
    home: str,
    job: str,
    threads: int = 1,
    limits: IsolationLimits | None = None,
) -> None:
    """Build the pipeline. Every element is text (StrUtf8Coder: deterministic, no pickle).

    With several ``threads`` one step computes all fragments, else they are redistributed to the runner's workers. The
    components' documents are sent once, with the step, since a service limits a job to some megabytes.
    """
    listed = ComponentList()
    elements = [f"{index:06d} {work.to_json(listed)}" for index, work in enumerate(works)]
    fragments = pipeline | "Fragments" >> CreateStrings(elements)
    if threads == 1:
        fragments = fragments | "Redistribute" >> Redistribute()
    _ = fragments | "MemoizeFragments" >> beam.ParDo(MemoizeFragments(home, job, listed.to_json(), threads, limits))


#: Called with the job's results; the returned context is active while the job runs.
Attendance = Callable[[JobResults], AbstractContextManager[object]]


def run_memoize(
    works: Sequence[FragmentWork],
    home: str,
    job: str,
    options: RunnerOptions | None = None,
    attend: Attendance = nullcontext,
    limits: IsolationLimits | None = None,
) -> tuple[FragmentResult, ...]:
    """Run the job named ``job`` (a unique name) and return the results that ``attend`` did not commit.

    Raises :class:`~transforms.errors.StorageError` when a memo could not be written, :class:`MemoizeFailed` when a
    fragment has no result, :class:`~transforms.errors.InputError` when the runner's workers cannot reach a fragment, and
    what the runner raises.
    """
    if not works:
        return ()
    chosen, storage = options or RunnerOptions(), Storage(home)
    require_reach(chosen, home, *(work.fragment.path for work in works))
    results = JobResults(storage, job, len(works), in_process=chosen.is_in_process)
    with attend(results):
        run_pipeline(lambda pipeline: build(pipeline, works, home, job, chosen.threads, limits), chosen, one_step=True,
                     job=results.running)  # fmt: skip
    last = tuple(results.new())
    if results.missing:
        raise MemoizeFailed("every fragment of a memoize job must have a result", where=f"job {job}",
                            value=f"{results.missing} of {len(works)} fragments",
                            next_step="see the runner's log; the tasks stay queued")  # fmt: skip
    return last
