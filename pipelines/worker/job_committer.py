"""The work of one job: its fragments and their tasks, and what becomes of each result.

A fragment's memos are committed together; components that failed are reported; a fragment that could not be read waits until
the job has ended, when it is known whether it is the file or this machine.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from pipelines.fragments.work import FragmentResult, FragmentWork, WantedComponent
from pipelines.worker.progress import WorkMeter
from pipelines.worker.report import WorkerReport
from pipelines.worker.unreadable import UnreadFiles, has_read, is_evidence, machine_error, replaced, unread_failure
from transforms.errors import StorageError
from warehouse.catalog.catalog import chunks
from warehouse.files.memo_file import memo_path
from warehouse.queue.commit import commit_memos
from warehouse.queue.fail import fail_tasks
from warehouse.queue.lease import reads_current_data
from warehouse.queue.tasks import LeasedTask, MemoWritten
from warehouse.tables.table import Overlay
from warehouse.warehouse import Warehouse

_LOG = logging.getLogger(__name__)

# A transaction has fixed costs; but the write lock is not held for long either.
_COMMIT_TASKS = 1_000


def group_by_fragment(tasks: Sequence[LeasedTask]) -> dict[str, tuple[FragmentWork, dict[str, LeasedTask]]]:
    """The work of each fragment by its output, with its tasks by memo key. Fragments keep the order of the lease."""
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


class WorkInHand:
    """The fragments of one job that are not finished, and the results that have come.

    Every method that writes can be called again after the catalog was away. ``unread_files``: what this worker could not read
    before. ``between``: called after every transaction.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        worker: str,
        tasks: Sequence[LeasedTask],
        unread_files: UnreadFiles,
        report: WorkerReport,
        meter: WorkMeter,
        between: Callable[[], None],
    ) -> None:
        self._warehouse, self._worker_name, self._report, self._meter = warehouse, worker, report, meter
        self._between = between
        self._works = group_by_fragment(tasks)
        self._work_secs = {task.memo_key: task.work_secs for task in tasks}
        self._fresh: list[FragmentResult] = []
        self._arrived: list[FragmentResult] = []
        self._unread: list[FragmentResult] = []
        self._can_read = False
        self._fault: StorageError | None = None
        #: What could not be read since anything was, in this job and before.
        self.unread_files = unread_files

    @property
    def works(self) -> list[FragmentWork]:
        """What is not finished."""
        return [work for work, _ in self._works.values()]

    @property
    def open_tasks(self) -> list[LeasedTask]:
        """The tasks that are neither committed nor reported."""
        return [task for _, tasks in self._works.values() for task in tasks.values()]

    def take(self, results: Sequence[FragmentResult]) -> None:
        """Commit or report every component that has a result by now, these and any before."""
        self._fresh += results
        while self._fresh:
            self._sort(self._fresh[0])
            del self._fresh[0]
        self._commit_arrived()

    def _sort(self, result: FragmentResult) -> None:
        """A fragment that could not be read waits until it is known whether this machine can read anything."""
        tasks = list(self._works[result.output][1].values())
        if unread_failure(result) is not None and not reads_current_data(self._warehouse, tasks):
            self._arrived.append(replaced(result))
        elif has_read(result):
            self._can_read, self.unread_files = True, UnreadFiles()
            self._arrived += [*self._unread, result]
            self._unread.clear()
        elif unread_failure(result) is None or self._can_read or not is_evidence(tasks):
            self._arrived.append(result)
        else:
            self._unread.append(result)

    def end(self) -> None:
        """The job has ended, and what waits could not be read, nor anything else. Raises StorageError if this machine is at fault.

        The first file counts as a failed attempt in any case: two bad ones would end one worker after another for ever.
        """
        if self._unread and self._fault is None:
            paths = [self._works[result.output][0].fragment.path for result in self._unread]
            failed, files = self._unread, self.unread_files.with_more(paths)
            if files.is_machine:
                self._fault = machine_error(paths[0], unread_failure(failed[0]))
                failed = [] if self.unread_files.paths else [one for one, path in zip(failed, paths, strict=True)
                                                              if path == paths[0]]  # fmt: skip
            self.unread_files, self._unread = files, []
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
            self._between()

    def _next_batch(self) -> list[FragmentResult]:
        """Results that are committed together: whole fragments, so that a file is in use as a whole or not at all."""
        batch: list[FragmentResult] = []
        tasks = 0
        for result in self._arrived:
            batch.append(result)
            tasks += len(result.outcomes)
            if tasks >= _COMMIT_TASKS:
                break
        return batch

    def _commit(self, batch: Sequence[FragmentResult]) -> None:
        """Commit the memos of some fragments in one transaction."""
        written = [
            (result, tasks, outcome)
            for result in batch
            for tasks in (self._works[result.output][1],)
            for outcome in result.outcomes
            if outcome.failure is None and outcome.memo_key in tasks
        ]
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
            _LOG.warning("%d memos were finished by another worker", len(answers) - sum(answers))

    def _finish(self, result: FragmentResult) -> None:
        """Report the components of a fragment that failed, and let the fragment go."""
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
            self._between()
        del self._works[result.output]
        self._arrived.remove(result)
        self._report.fragments += 1
        self._report.raw_bytes_read += result.raw_bytes_read
        self._meter.finished(len(result.outcomes), work_secs, result.rows, result.raw_bytes_read, time.monotonic())
