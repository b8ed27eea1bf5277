"""The worker's loop: lease tasks, compute them in one Beam job, commit the results.

:func:`~pipelines.worker.state_machine.decide` determines the next step; this module does the I/O. While a job runs, an
attendant thread commits results as they arrive and sends heartbeats, so that a killed worker loses only unfinished
fragments. A commit has the fencing token of its lease: that of an expired lease is rejected and changes nothing.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.processes import child_processes
from pipelines.memoize.job_results import JobResults, remove_abandoned_results
from pipelines.runners.runner import RunnerOptions
from pipelines.staging.job_flags import job_options, prepare_options, refuse_template
from pipelines.worker.catalog_retry import CATALOG_RETRY_SECS, CATALOG_UNAVAILABLE, CatalogRetry
from pipelines.worker.job_committer import JobCommitter
from pipelines.worker.progress import OnWork, WorkMeter
from pipelines.worker.report import WorkerReport
from pipelines.worker.state_machine import Instruction, Lease, Run, Sleep, Stop, WorkerState, decide, heartbeat_secs
from pipelines.worker.unreadable import ReadFailures
from transforms.errors import InputError
from transforms.tracing.spans import span
from warehouse.eviction.evict import settle_storage
from warehouse.joins.computation import Computation
from warehouse.joins.refresh import Compute, JoinWorker
from warehouse.matching.submit import queue_missing
from warehouse.queue.depths import queued_tasks, unfinished_tasks
from warehouse.queue.history import record_minute
from warehouse.queue.lease import heartbeat, lease_tasks, release_tasks
from warehouse.queue.tasks import LeasedTask
from warehouse.scheduling.batching import BatchBudget
from warehouse.warehouse import Warehouse

_LOG = logging.getLogger(__name__)

# Until idle, a worker does not wait longer than this for the next attempt of a task.
_SOON_SECS = 30.0
# Far longer than a running job needs its results.
_ABANDONED_SECS = 7 * 86_400
#: Between two looks whether the queue of the minute is recorded.
_RECORD_SECS = 15.0


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The configuration of a worker.

    Attributes:
        name: The worker's name.
        runner: The Beam runner (:class:`~pipelines.runners.runner.RunnerOptions`).
        batch_tasks: Tasks to lease at once. A job takes about a second to start; but leased tasks are not shared with
            other workers, nor preceded by more urgent ones.
        batch_bytes: Bytes that the tasks of a batch read and write.
        runner_workers: The runner's threads; 0 means one per core.
        runner_flags: Beam pipeline options.
        poll_secs: The wait after an empty lease.
        catalog_retry_secs: The time limit of retries while the catalog is unavailable, such as in a restart.
        limits: The limits of a child process.
    """

    name: str
    runner: str = "DirectRunner"
    batch_tasks: int = BatchBudget().tasks
    batch_bytes: float = BatchBudget().bytes
    runner_workers: int = 0
    runner_flags: tuple[str, ...] = ()
    poll_secs: float = 0.5
    catalog_retry_secs: float = CATALOG_RETRY_SECS
    limits: IsolationLimits = field(default_factory=IsolationLimits)

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a worker must have a name", value=self.name)
        BatchBudget(self.batch_bytes, self.batch_tasks)
        if not self.poll_secs > 0 or not self.catalog_retry_secs >= 0:
            raise InputError(
                "poll_secs must be positive and catalog_retry_secs must not be negative",
                value=(self.poll_secs, self.catalog_retry_secs),
                allowed="poll_secs > 0, catalog_retry_secs >= 0",
            )
        _ = self.runner_options  # raises for options that Beam does not have

    @property
    def runner_options(self) -> RunnerOptions:
        """The runner and its options."""
        return RunnerOptions(self.runner, self.runner_workers, self.runner_flags)


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
    """Work until ``stop`` is set or, with ``until_idle``, until no task is leased, or queued and due soon.

    Before each lease, the memos that live models miss in new partitions are queued. A component that fails, or whose raw
    data is unreadable, is reported to the queue and affects no other.

    Args:
        warehouse: The warehouse.
        config: The configuration.
        until_idle: Whether to stop when no task is left.
        progress: Called after every change of the progress.
        stop: Requests a stop when it is set.
        on_step: Called with every step of the loop.
        report: Counters to update while the worker runs.

    Raises:
        InputError: The runner cannot start or cannot reach the home; nothing was leased.
        StorageError: Memos cannot be written (a full disk), or this machine can read no raw data
            (:mod:`pipelines.worker.unreadable`); its tasks are released and not attempted.
    """
    refuse_template(config.runner_options)
    with prepare_options(config.runner_options, warehouse.storage.home) as options:
        if config.runner == "DirectRunner":
            child_processes().prepare()
        counters, stop = WorkerReport() if report is None else report, stop or threading.Event()
        catalog_retry = CatalogRetry(config.catalog_retry_secs, stop, counters.count_busy, random.random)
        worker = _Worker(warehouse, config, options, progress, counters, catalog_retry)
        try:
            return _work(worker, warehouse, config, until_idle, stop, on_step, catalog_retry)
        finally:
            worker.release()


def _work(
    worker: _Worker,
    warehouse: Warehouse,
    config: WorkerConfig,
    until_idle: bool,
    stop: threading.Event,
    on_step: Callable[[Instruction], None] | None,
    catalog_retry: CatalogRetry,
) -> WorkerReport:
    joins = JoinWorker(warehouse, config.name, compute=_computing(config, worker.options))

    def join() -> bool:
        """Compute joined columns of some fragments; whether there were any. What is above them is queued by the next lease."""
        with span("join"):
            step = joins.step()
        if step is not None:
            worker.report.count_join(step)
        return step is not None

    def lease() -> tuple[LeasedTask, ...]:
        with worker.report.leases.timed(), span("lease"):
            settle_storage(warehouse)
            queue_missing(warehouse)
            found = lease_tasks(warehouse, config.name, limit=config.batch_tasks, batch_bytes=config.batch_bytes)
        worker.record_queue_if_due()
        return found

    remove_abandoned_results(warehouse.storage, catalog_retry.call(warehouse.clock) - _ABANDONED_SECS)
    started = time.monotonic()
    queue_was_empty = False
    while True:
        unfinished = catalog_retry.call(lambda: _unfinished(warehouse, joins)) if queue_was_empty else 0
        state = WorkerState(len(worker.leased), queue_was_empty, unfinished, until_idle, stop.is_set())
        instruction = decide(state)
        if on_step is not None:
            on_step(instruction)
        match instruction:
            case Lease():
                joined = catalog_retry.call(join)
                worker.leased = catalog_retry.call(lease)
                queue_was_empty = not (worker.leased or joined)
            case Run():
                worker.run()
            case Sleep():
                worker.wait_for(unfinished)
                stop.wait(config.poll_secs)
                queue_was_empty = False
            case Stop(why):
                _LOG.info("worker %s stops: %s", config.name, why)
                worker.report.secs = time.monotonic() - started
                if until_idle and not stop.is_set():
                    worker.report.postponed = catalog_retry.call(lambda: unfinished_tasks(warehouse))
                return worker.report


def _computing(config: WorkerConfig, options: RunnerOptions) -> Compute:
    """How joined columns are computed: in this process, or by a job on the runner's machines."""
    if options.is_in_process:
        return Computation.columns

    def by_beam(work: Computation) -> Mapping[str, pa.Array]:
        from pipelines.joins.pipeline import joined_by_beam

        return joined_by_beam(work, job_options(options, config.name, uuid.uuid4().hex))

    return by_beam


def _unfinished(warehouse: Warehouse, joins: JoinWorker) -> int:
    """Tasks, and fragments whose joined columns are computed, that are not finished and soon may be."""
    return unfinished_tasks(warehouse, _SOON_SECS) + joins.waiting


class _Worker:
    """The leased tasks, the counters of earlier ones, and the I/O of a job."""

    def __init__(
        self,
        warehouse: Warehouse,
        config: WorkerConfig,
        options: RunnerOptions,
        progress: OnWork | None,
        report: WorkerReport,
        catalog_retry: CatalogRetry,
    ) -> None:
        self._warehouse, self._config, self.options, self._progress = warehouse, config, options, progress
        self._catalog_retry = catalog_retry
        self._meter = WorkMeter()
        self._heartbeat_at = self._record_at = 0.0
        self._read_failures = ReadFailures()
        self.leased: tuple[LeasedTask, ...] = ()
        self.report = report

    def run(self) -> None:
        """Compute the leased tasks and commit their memos. Tasks that are still open at the end are released."""
        if self._config.runner == "DirectRunner":
            child_processes().expect_work()
        from pipelines.memoize.pipeline import run_memoize  # Beam, which a worker without a task does not need

        tasks = self.leased
        committer = JobCommitter(self._warehouse, self._config.name, tasks, self._read_failures, self.report, self._meter,
                          lambda: self._after_transaction(committer))  # fmt: skip
        self.report.tasks += len(tasks)
        self.report.jobs += 1
        started = time.monotonic()
        try:
            work_secs = sum(task.work_secs for task in tasks)
            self._meter.record_lease(len(tasks), work_secs, self._queued(), time.monotonic())
            self._report_progress()
            home, job = self._warehouse.storage.home, uuid.uuid4().hex
            options = job_options(self.options, self._config.name, job)
            with span("job", tasks=len(tasks)):
                run_memoize(
                    committer.works, home, job, options, partial(self._attend_job, committer), self._config.limits
                )
        finally:
            job_secs = time.monotonic() - started
            self.report.job_secs += job_secs
            self.report.job_times.observe(job_secs)
            self._read_failures = committer.read_failures
            self.leased = tuple(committer.open_tasks)
            self.release()
            self._meter.record_job_end(time.monotonic())

    def release(self) -> None:
        """Release the leased tasks, not attempted. While the catalog is unavailable, their leases expire instead."""
        held, self.leased = self.leased, ()
        try:
            if held:
                release_tasks(self._warehouse, held)
        except CATALOG_UNAVAILABLE as error:
            _LOG.warning(
                "%d tasks cannot be released; they are queued again when their leases expire: %s", len(held), error
            )

    def record_queue_if_due(self) -> None:
        """Record the queue of this minute, unless a worker has done so, and look for that a few times a minute."""
        if time.monotonic() >= self._record_at:
            record_minute(self._warehouse)
            self._record_at = time.monotonic() + _RECORD_SECS

    def wait_for(self, tasks: int) -> None:
        """Report that the worker only waits for ``tasks`` tasks."""
        self._meter.record_wait(tasks)
        self._report_progress()

    @contextmanager
    def _attend_job(self, committer: JobCommitter, results: JobResults) -> Iterator[None]:
        """Commit results while the job runs, and send heartbeats for the rest."""
        done = threading.Event()
        failures: list[BaseException] = []

        def attend() -> None:
            try:
                self._attend(committer, results, done)
            except BaseException as error:  # raised again where the job was started
                failures.append(error)
                results.running.end(error)  # its leases are no longer renewed

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
                self._add_rest(committer, results, retry=finished)
            finally:
                results.remove()

    def _add_rest(self, committer: JobCommitter, results: JobResults, *, retry: bool) -> None:
        """Commit the last results of an ended job. After an error or a signal the catalog is not retried."""
        if retry:
            self._catalog_retry.call(lambda: committer.add_results(results.new()))
            self._catalog_retry.call(committer.end)
            return
        try:
            committer.add_results(results.new())
        except CATALOG_UNAVAILABLE as error:
            _LOG.warning("the last results of the job are lost and will be computed again: %s", error)

    def _attend(self, committer: JobCommitter, results: JobResults, done: threading.Event) -> None:
        self._heartbeat_at = time.monotonic() + self._heartbeat_secs
        while not done.wait(min(results.collect_secs, self._heartbeat_secs)):
            try:
                self._send_heartbeat_if_due(committer)
                self.record_queue_if_due()
                committer.add_results(results.new())
            except CATALOG_UNAVAILABLE as error:
                self.report.count_busy()
                _LOG.warning("the catalog is unavailable; trying again: %s", error)

    @property
    def _heartbeat_secs(self) -> float:
        return heartbeat_secs(self._warehouse.config.lease_secs)

    def _send_heartbeat_if_due(self, committer: JobCommitter) -> None:
        if time.monotonic() >= self._heartbeat_at:
            heartbeat(self._warehouse, committer.open_tasks)
            self._heartbeat_at = time.monotonic() + self._heartbeat_secs

    def _after_transaction(self, committer: JobCommitter) -> None:
        self._report_progress()
        self._send_heartbeat_if_due(committer)

    def _queued(self) -> int:
        if self._progress is None:
            return 0  # the remaining time is not needed
        return self._catalog_retry.call(lambda: queued_tasks(self._warehouse))

    def _report_progress(self) -> None:
        if self._progress is not None:
            self._progress(self._meter.progress)
