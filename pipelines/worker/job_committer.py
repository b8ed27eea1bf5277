"""Commit the results of one job: its fragments, their tasks and memos.

A fragment's memos are committed together, and its failed components are reported. An unreadable fragment waits until the
job ends, when it is known whether the fault is the file's or this machine's.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from pipelines.fragments.work import FragmentResult, FragmentWork, WantedComponent
from pipelines.worker.progress import WorkMeter
from pipelines.worker.report import WorkerReport
from pipelines.worker.unreadable import (
    ReadFailures,
    as_changed_data,
    counts_as_host_fault,
    has_read,
    host_fault_error,
    read_failure,
)
from transforms.errors import StorageError
from transforms.log_fields import log_fields
from transforms.tracing.spans import span
from warehouse.catalog.catalog import chunks
from warehouse.files.memo_file import memo_path
from warehouse.queue.commit import commit_memos
from warehouse.queue.fail import fail_tasks
from warehouse.queue.lease import reads_current_data
from warehouse.queue.tasks import LeasedTask, MemoWritten
from warehouse.tables.table import Overlay
from warehouse.warehouse import Warehouse

_LOG = logging.getLogger(__name__)

# A transaction has fixed costs, but must not hold the write lock for long.
_COMMIT_TASKS = 1_000


def group_by_fragment(tasks: Sequence[LeasedTask]) -> dict[str, tuple[FragmentWork, dict[str, LeasedTask]]]:
    """Work and tasks (by memo key) of each fragment, by output, in the order of the lease."""
    groups: defaultdict[tuple[str, str, str, tuple[Overlay, ...]], list[LeasedTask]] = defaultdict(list)
    for task in tasks:
        groups[task.table, task.partition, task.fragment.fragment_id, task.fragment.overlays].append(task)
    works = {}
    for (table, partition, fragment_id, _), group in groups.items():
        ordered = sorted(group, key=lambda task: task.fingerprint)
        output = memo_path(table, partition, fragment_id, [task.memo_key for task in ordered], ordered[0].lease)
        components = tuple(WantedComponent(task.memo_key, task.fingerprint, task.component) for task in ordered)
        work = FragmentWork(ordered[0].fragment, components, output)
        works[output] = (work, {task.memo_key: task for task in ordered})
    return works


class JobCommitter:
    """The unfinished fragments of one job, and the results that arrived.

    Every writing method can be called again after :data:`~pipelines.worker.catalog_retry.CATALOG_UNAVAILABLE`.

    Args:
        warehouse: The warehouse.
        worker: The worker's name.
        tasks: The leased tasks.
        read_failures: The files that this worker could not read before.
        report: Counts what is committed and fails.
        meter: Measures the progress.
        on_transaction: Called after every transaction.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        worker: str,
        tasks: Sequence[LeasedTask],
        read_failures: ReadFailures,
        report: WorkerReport,
        meter: WorkMeter,
        on_transaction: Callable[[], None],
    ) -> None:
        self._warehouse, self._worker_name, self._report, self._meter = warehouse, worker, report, meter
        self._on_transaction = on_transaction
        self._works = group_by_fragment(tasks)
        self._work_secs = {task.memo_key: task.work_secs for task in tasks}
        self._fresh: list[FragmentResult] = []
        self._arrived: list[FragmentResult] = []
        self._unread: list[FragmentResult] = []
        self._can_read = False
        self._fault: StorageError | None = None
        #: The files that could not be read since the last one was, in this job and before.
        self.read_failures = read_failures

    @property
    def works(self) -> list[FragmentWork]:
        """The unfinished work."""
        return [work for work, _ in self._works.values()]

    @property
    def open_tasks(self) -> list[LeasedTask]:
        """The tasks that are neither committed nor reported."""
        return [task for _, tasks in self._works.values() for task in tasks.values()]

    def add_results(self, results: Sequence[FragmentResult]) -> None:
        """Commit or report every component with a result, also those of earlier calls that raised."""
        self._fresh += results
        while self._fresh:
            self._sort(self._fresh[0])
            del self._fresh[0]
        self._commit_arrived()

    def _sort(self, result: FragmentResult) -> None:
        """Queue a result for its commit; an unreadable fragment waits until this machine has read any file."""
        tasks = list(self._works[result.output][1].values())
        if read_failure(result) is not None and not reads_current_data(self._warehouse, tasks):
            self._arrived.append(as_changed_data(result))
        elif has_read(result):
            self._can_read, self.read_failures = True, ReadFailures()
            self._arrived += [*self._unread, result]
            self._unread.clear()
        elif read_failure(result) is None or self._can_read or not counts_as_host_fault(tasks):
            self._arrived.append(result)
        else:
            self._unread.append(result)

    def end(self) -> None:
        """Report the fragments that could not be read. Raises StorageError if this machine is at fault.

        The first file counts as a failed attempt in any case; otherwise two bad files would end all workers.
        """
        if self._unread and self._fault is None:
            paths = [self._works[result.output][0].fragment.path for result in self._unread]
            failed, files = self._unread, self.read_failures.add(paths)
            if files.is_host_fault:
                self._fault = host_fault_error(paths[0], read_failure(failed[0]))
                failed = [] if self.read_failures.paths else [one for one, path in zip(failed, paths, strict=True)
                                                              if path == paths[0]]  # fmt: skip
            self.read_failures, self._unread = files, []
            self._arrived += failed
        self._commit_arrived()
        if self._fault is not None:
            raise self._fault

    def _commit_arrived(self) -> None:
        while self._arrived:
            batch = self._next_batch()
            self._commit(batch)
            for result in batch:
                self._finish(result)
            self._on_transaction()

    def _next_batch(self) -> list[FragmentResult]:
        """Results that are committed together: whole fragments, so that no file is used in part."""
        batch: list[FragmentResult] = []
        tasks = 0
        for result in self._arrived:
            batch.append(result)
            tasks += len(result.outcomes)
            if tasks >= _COMMIT_TASKS:
                break
        return batch

    def _commit(self, batch: Sequence[FragmentResult]) -> None:
        """Commit the memos of a batch in one transaction."""
        written = [
            (result, tasks, outcome)
            for result in batch
            for tasks in (self._works[result.output][1],)
            for outcome in result.outcomes
            if outcome.failure is None and outcome.memo_key in tasks
        ]
        with self._report.commits.timed(), span("commit", fragments=len(batch), memos=len(written)):
            answers = commit_memos(self._warehouse, [
                (tasks[outcome.memo_key], MemoWritten(result.file_of(outcome), outcome.rows, outcome.size_bytes, outcome.secs))
                for result, tasks, outcome in written
            ], [work for result in batch for work in result.operators])  # fmt: skip
        for (result, tasks, outcome), answer in zip(written, answers, strict=True):
            del tasks[outcome.memo_key]
            self._report.memos += answer
            self._report.rows += answer * result.rows
            self._report.fenced += not answer
        if not all(answers):
            _LOG.warning("%d memos were committed by another worker", len(answers) - sum(answers))

    def _finish(self, result: FragmentResult) -> None:
        """Report the failed components of a fragment and drop the fragment."""
        _, tasks = self._works[result.output]
        work_secs = sum(self._work_secs[outcome.memo_key] for outcome in result.outcomes)
        failed = [
            (tasks[outcome.memo_key], outcome.failure)
            for outcome in result.outcomes
            if outcome.failure is not None and outcome.memo_key in tasks
        ]
        for chunk in chunks(failed, _COMMIT_TASKS):
            fail_tasks(self._warehouse, chunk, worker=self._worker_name)
            for task, failure in chunk:
                del tasks[task.memo_key]
                self._report.count_failure(failure)
                with log_fields(
                    task=task.task_id, table=task.table, partition=task.partition, fragment=task.fragment.fragment_id
                ):
                    _LOG.info(
                        "attempt %d of component %s failed: %s", task.attempt, task.fingerprint[:12], failure.message
                    )
            self._on_transaction()
        del self._works[result.output]
        self._arrived.remove(result)
        self._report.fragments += 1
        self._report.raw_bytes_read += result.raw_bytes_read
        self._meter.record_fragment(
            len(result.outcomes), work_secs, result.rows, result.raw_bytes_read, time.monotonic()
        )
