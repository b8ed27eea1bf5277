"""The worker: lease tasks, compute them in one Beam job, commit what came out, again.

What to do next is decided by :func:`~pipelines.worker_machine.decide`, a pure function; the loop around it does the reading and writing. While
a job runs, one attendant thread commits results as they arrive and keeps the leases alive, so that a worker killed
in the middle loses only the fragments that were not finished. A commit shows the fence of its lease: a worker that
was thought lost, and is not, is told so and changes nothing.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pipelines.beam_runner import RunnerOptions
from pipelines.fragment_work import FragmentResult, FragmentWork, WantedComponent
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.processes import child_processes
from pipelines.memoize import JobResults, remove_abandoned_results, run_memoize
from pipelines.patience import AWAY, PATIENCE_SECS, Patience
from pipelines.staging import for_job, ready_to_run, refuse_template
from pipelines.unreadable import UnreadFiles, has_read, is_evidence, machine_error, replaced, unread_failure
from pipelines.work_progress import OnWork, WorkMeter
from pipelines.worker_machine import Instruction, Lease, Run, Sleep, Stop, WorkerState, beat_secs, decide
from transforms.errors import InputError, StorageError
from warehouse.batching import BatchBudget
from warehouse.catalog import chunks
from warehouse.failures import Failure
from warehouse.memo_file import memo_path
from warehouse.queue import (
    LeasedTask,
    MemoWritten,
    commit_memos,
    fail_tasks,
    heartbeat,
    lease_tasks,
    over_current_data,
    queued_tasks,
    release_tasks,
    unfinished_tasks,
)
from warehouse.submit import queue_missing
from warehouse.table import Overlay
from warehouse.warehouse import Warehouse

_LOG = logging.getLogger(__name__)

# A commit has fixed costs of some fragments, and a kill loses no more than this.
_COLLECT_SECS = 1.0
# A bucket bills every listing.
_COLLECT_SECS_BUCKET = 2.0
# A transaction has fixed costs; but the write lock is not held for long either.
_COMMIT_TASKS = 1_000
#: A worker may run for months, and meet one broken component in every fragment.
ERRORS_KEPT = 100
# Who works until nothing is left does not wait longer for a task to be tried again.
_SOON_SECS = 30.0
# Far longer than any result waits for the worker that asked for it.
_ABANDONED_SECS = 7 * 86_400


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """``batch_tasks``, ``batch_bytes``: lease up to this many tasks at a time, which read and write about so much. Starting a
    job costs most of a second; but what is leased is not shared with other workers, nor overtaken by more urgent tasks.

    ``runner``, ``runner_workers`` and ``runner_flags`` are those of :class:`~pipelines.beam_runner.RunnerOptions`.
    ``poll_secs``: how long to wait before asking an empty queue again. ``catalog_patience_secs``: how long to wait for a catalog that
    cannot be reached, such as a database that is restarted. ``limits``: what one process that computes may take.
    """

    name: str
    runner: str = "DirectRunner"
    batch_tasks: int = BatchBudget().tasks
    batch_bytes: float = BatchBudget().bytes
    runner_workers: int = 0
    runner_flags: tuple[str, ...] = ()
    poll_secs: float = 0.5
    catalog_patience_secs: float = PATIENCE_SECS
    limits: IsolationLimits = field(default_factory=IsolationLimits)

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a worker needs a name", value=self.name)
        BatchBudget(self.batch_bytes, self.batch_tasks)
        if not self.poll_secs > 0 or not self.catalog_patience_secs >= 0:
            raise InputError("a worker waits some time before it asks again",
                             value=(self.poll_secs, self.catalog_patience_secs),
                             allowed="poll_secs > 0, catalog_patience_secs >= 0")  # fmt: skip
        _ = self.runner_options  # refuses what Beam does not know

    @property
    def runner_options(self) -> RunnerOptions:
        """How its jobs are run."""
        return RunnerOptions(self.runner, self.runner_workers, self.runner_flags)


@dataclass(slots=True)
class WorkerReport:
    """What a worker did so far.

    ``tasks`` were leased; ``memos`` of them are READY by this worker's commit, ``failures`` failed an attempt, and ``fenced``
    were lost to another worker. ``rows`` counts events, once for each memo. ``raw_bytes_read``: raw columns, as they
    lay in memory, once for each fragment. ``job_secs`` of ``secs`` went
    into jobs. ``times_busy``: how often the catalog was locked for longer than its timeout, or could not be reached.
    ``postponed``: tasks that it left in the queue, as they are to be tried again later than it cared to wait.
    ``errors``: the first :data:`ERRORS_KEPT` different messages of the failures; the quarantine has them all.
    """

    tasks: int = 0
    memos: int = 0
    failures: int = 0
    fenced: int = 0
    fragments: int = 0
    jobs: int = 0
    rows: int = 0
    raw_bytes_read: int = 0
    secs: float = 0.0
    job_secs: float = 0.0
    times_busy: int = 0
    postponed: int = 0
    errors: list[str] = field(default_factory=list)

    def count_busy(self) -> None:
        """The catalog could not be reached, once more."""
        self.times_busy += 1

    def count_failure(self, failure: Failure) -> None:
        """An attempt failed."""
        self.failures += 1
        if len(self.errors) < ERRORS_KEPT and failure.message not in self.errors:
            self.errors.append(failure.message)


def run_worker(
    warehouse: Warehouse,
    config: WorkerConfig,
    *,
    until_idle: bool,
    progress: OnWork | None = None,
    stop: threading.Event | None = None,
    on_step: Callable[[Instruction], None] | None = None,
    report: WorkerReport | None = None,
) -> WorkerReport:
    """Work until ``stop`` is set or, with ``until_idle``, until no task is leased, nor queued and due soon.

    Before each lease, what live models miss because their table grew is queued: nobody has to submit them again.

    ``progress`` is told how far it is; ``report`` is kept up to date for who looks meanwhile. A component that fails is
    reported to the queue and costs nothing else, and so are the components over raw data that cannot be read. Raises
    :class:`InputError`, before anything is leased, for a runner that could not start or not reach the home; and
    :class:`~transforms.errors.StorageError` when memos cannot be written (a full disk), or when this machine can read no raw
    data at all (:mod:`pipelines.unreadable`); its tasks are given back untried.
    """
    refuse_template(config.runner_options)
    with ready_to_run(config.runner_options, warehouse.storage.home) as options:
        if config.runner == "DirectRunner":
            child_processes().prepare()
        kept, asked = WorkerReport() if report is None else report, stop or threading.Event()
        patience = Patience(config.catalog_patience_secs, asked, kept.count_busy, random.random)
        worker = _Worker(warehouse, config, options, progress, kept, patience)
        try:
            return _work(worker, warehouse, config, until_idle, asked, on_step, patience)
        finally:
            worker.give_back()


def _work(
    worker: _Worker,
    warehouse: Warehouse,
    config: WorkerConfig,
    until_idle: bool,
    stop: threading.Event,
    on_step: Callable[[Instruction], None] | None,
    patience: Patience,
) -> WorkerReport:
    def leased() -> tuple[LeasedTask, ...]:
        queue_missing(warehouse)
        return lease_tasks(warehouse, config.name, limit=config.batch_tasks, batch_bytes=config.batch_bytes)

    remove_abandoned_results(warehouse.storage, warehouse.clock() - _ABANDONED_SECS)
    begun = time.monotonic()
    queue_was_empty = False
    while True:
        unfinished = patience.call(lambda: unfinished_tasks(warehouse, _SOON_SECS)) if queue_was_empty else 0
        state = WorkerState(len(worker.in_hand), queue_was_empty, unfinished, until_idle, stop.is_set())
        instruction = decide(state)
        if on_step is not None:
            on_step(instruction)
        match instruction:
            case Lease():
                worker.in_hand = patience.call(leased)
                queue_was_empty = not worker.in_hand
            case Run():
                worker.run()
            case Sleep():
                worker.wait_for(unfinished)
                stop.wait(config.poll_secs)
                queue_was_empty = False
            case Stop(why):
                _LOG.info("worker %s stops: %s", config.name, why)
                worker.report.secs = time.monotonic() - begun
                if until_idle and not stop.is_set():
                    worker.report.postponed = patience.call(lambda: unfinished_tasks(warehouse))
                return worker.report


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


class _Worker:
    """The tasks in hand, what became of those before, and the reading and writing that a job needs."""

    def __init__(
        self,
        warehouse: Warehouse,
        config: WorkerConfig,
        options: RunnerOptions,
        progress: OnWork | None,
        report: WorkerReport,
        patience: Patience,
    ) -> None:
        self._warehouse, self._config, self._options, self._progress = warehouse, config, options, progress
        self._patience = patience
        self._meter = WorkMeter()
        self._beat_at = 0.0
        self._work_secs: dict[str, float] = {}
        self._works: dict[str, tuple[FragmentWork, dict[str, LeasedTask]]] = {}
        self._fresh: list[FragmentResult] = []
        self._arrived: list[FragmentResult] = []
        self._unread: list[FragmentResult] = []
        self._unread_files = UnreadFiles()
        self._can_read = False
        self._fault: StorageError | None = None
        self.in_hand: tuple[LeasedTask, ...] = ()
        self.report = report

    def run(self) -> None:
        """Compute the tasks in hand and commit them. Whatever goes wrong, tasks still owned are given back."""
        self._works = group_by_fragment(self.in_hand)
        self._can_read = False
        self._work_secs = {task.memo_key: task.work_secs for task in self.in_hand}
        self.report.tasks += len(self.in_hand)
        self.report.jobs += 1
        begun = time.monotonic()
        try:
            self._meter.leased(len(self.in_hand), sum(self._work_secs.values()), self._queued(), time.monotonic())
            self._tell()
            works = [work for work, _ in self._works.values()]
            home, job = self._warehouse.storage.home, uuid.uuid4().hex
            options = for_job(self._options, self._config.name, job)
            run_memoize(works, home, job, options, self._attended, self._config.limits)
        finally:
            self.report.job_secs += time.monotonic() - begun
            self.in_hand = tuple(self._open_tasks())
            self._works, self._fresh, self._arrived, self._unread = {}, [], [], []
            self.give_back()
            self._meter.stopped(time.monotonic())

    def give_back(self) -> None:
        """Release what is in hand, untried. Where the catalog is away, their leases run out instead."""
        held, self.in_hand = self.in_hand, ()
        try:
            if held:
                release_tasks(self._warehouse, held)
        except AWAY as error:
            _LOG.warning("%d tasks cannot be given back, and come back when their leases run out: %s", len(held), error)

    def wait_for(self, tasks: int) -> None:
        """Tell that there is nothing to do but to wait for ``tasks`` tasks."""
        self._meter.waits(tasks)
        self._tell()

    @contextmanager
    def _attended(self, results: JobResults) -> Iterator[None]:
        """While the job runs: commit what arrives, and keep the leases of the rest."""
        done = threading.Event()
        failures: list[BaseException] = []

        def attend() -> None:
            try:
                self._attend(results, done)
            except BaseException as error:  # raised again where the job was started
                failures.append(error)
                results.running.end(error)  # nobody keeps the leases of what it computes

        thread = threading.Thread(target=attend, name=f"attendant of {self._config.name}", daemon=True)
        thread.start()
        finished = False
        try:
            yield
            finished = True
        finally:
            done.set()
            thread.join()
            if failures:
                raise failures[0]
            try:
                self._collect_rest(results, patiently=finished)
            finally:
                results.remove()

    def _collect_rest(self, results: JobResults, *, patiently: bool) -> None:
        """What is left when the job has ended. Whoever leaves by an error, or was told to stop, does not wait besides."""
        if patiently:
            self._patience.call(lambda: self._collect(results))
            self._patience.call(self._collect_unread)
            return
        try:
            self._collect(results)
        except AWAY as error:
            _LOG.warning("what the job finished last is lost, and will be computed again: %s", error)

    def _attend(self, results: JobResults, done: threading.Event) -> None:
        collect_secs = _COLLECT_SECS if self._warehouse.storage.is_local else _COLLECT_SECS_BUCKET
        self._beat_at = time.monotonic() + self._beat_secs
        while not done.wait(min(collect_secs, self._beat_secs)):
            try:
                self._beat_if_due()
                self._collect(results)
            except AWAY as error:
                self.report.count_busy()
                _LOG.warning("the catalog is busy; trying again: %s", error)

    @property
    def _beat_secs(self) -> float:
        return beat_secs(self._warehouse.config.lease_secs)

    def _beat_if_due(self) -> None:
        if time.monotonic() >= self._beat_at:
            heartbeat(self._warehouse, self._open_tasks())
            self._beat_at = time.monotonic() + self._beat_secs

    def _queued(self) -> int:
        if self._progress is None:
            return 0  # nobody asks how long the rest takes
        return self._patience.call(lambda: queued_tasks(self._warehouse))

    def _open_tasks(self) -> list[LeasedTask]:
        return [task for _, tasks in self._works.values() for task in tasks.values()]

    def _collect(self, results: JobResults) -> None:
        """Commit or fail every component that has a result. While the catalog is away it can be called again."""
        self._fresh += results.new()
        while self._fresh:
            self._sort(self._fresh[0])
            del self._fresh[0]
        self._commit_arrived()

    def _sort(self, result: FragmentResult) -> None:
        """A fragment that could not be read waits until it is known whether this machine can read anything."""
        tasks = list(self._works[result.output][1].values())
        if unread_failure(result) is not None and not over_current_data(self._warehouse, tasks):
            self._arrived.append(replaced(result))
        elif has_read(result):
            self._can_read, self._unread_files = True, UnreadFiles()
            self._arrived += [*self._unread, result]
            self._unread.clear()
        elif unread_failure(result) is None or self._can_read or not is_evidence(tasks):
            self._arrived.append(result)
        else:
            self._unread.append(result)

    def _collect_unread(self) -> None:
        """The job has ended, and what waits could not be read, nor anything else. Raises StorageError if this machine is at fault.

        The first file counts as a failed attempt in any case: two bad ones would end one worker after another for ever.
        """
        if self._unread and self._fault is None:
            paths = [self._works[result.output][0].fragment.path for result in self._unread]
            failed, files = self._unread, self._unread_files.with_more(paths)
            if files.is_machine:
                self._fault = machine_error(paths[0], unread_failure(failed[0]))
                failed = [] if self._unread_files.paths else [one for one, path in zip(failed, paths, strict=True)
                                                              if path == paths[0]]  # fmt: skip
            self._unread_files, self._unread = files, []
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
            self._tell()
            self._beat_if_due()

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
            self.report.memos += answer
            self.report.rows += answer * result.rows
            self.report.fenced += not answer
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
            fail_tasks(self._warehouse, chunk, worker=self._config.name)
            for task, failure in chunk:
                del tasks[task.memo_key]
                self.report.count_failure(failure)
            self._beat_if_due()
        del self._works[result.output]
        self._arrived.remove(result)
        self.report.fragments += 1
        self.report.raw_bytes_read += result.raw_bytes_read
        self._meter.finished(len(result.outcomes), work_secs, result.rows, result.raw_bytes_read, time.monotonic())

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._meter.progress)
