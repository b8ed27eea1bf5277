"""The counters of a worker, for screens and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from transforms.metrics.instruments import Histogram
from warehouse.joins.refresh import JoinStep
from warehouse.queue.failures import Failure

#: A limit, since a worker may run for months with a component that fails in every fragment.
ERRORS_KEPT = 100


@dataclass(slots=True)
class WorkerReport:
    """The counters of a worker.

    Attributes:
        tasks: Leased tasks.
        memos: Memos that this worker committed.
        failures: Failed attempts.
        fenced: Tasks that another worker leased before the commit.
        fragments: Finished fragments.
        joined_fragments: Fragments whose joined columns were computed.
        rejoined_fragments: Those of them that have other values now.
        failed_joins: Joined columns that failed.
        jobs: Started jobs.
        rows: Events, once for each memo.
        raw_bytes_read: The size in memory of the raw columns, once for each fragment.
        secs: The run time.
        job_secs: The run time of jobs.
        times_busy: How often the catalog was locked for longer than its timeout, or unreachable.
        postponed: Tasks left in the queue, since their next attempt is due too late.
        leases, commits, job_times: The seconds of each lease, of each transaction that commits memos, and of each job.
        errors: The first :data:`ERRORS_KEPT` distinct messages of failures; the quarantine has all.
    """

    tasks: int = 0
    memos: int = 0
    failures: int = 0
    fenced: int = 0
    fragments: int = 0
    joined_fragments: int = 0
    rejoined_fragments: int = 0
    failed_joins: int = 0
    jobs: int = 0
    rows: int = 0
    raw_bytes_read: int = 0
    secs: float = 0.0
    job_secs: float = 0.0
    times_busy: int = 0
    postponed: int = 0
    leases: Histogram = field(default_factory=Histogram, compare=False, repr=False)
    commits: Histogram = field(default_factory=Histogram, compare=False, repr=False)
    job_times: Histogram = field(default_factory=Histogram, compare=False, repr=False)
    errors: list[str] = field(default_factory=list)

    def count_busy(self) -> None:
        """Count a failed access to the catalog."""
        self.times_busy += 1

    def count_join(self, step: JoinStep) -> None:
        """Count computed joined columns, and the messages of those that failed."""
        self.joined_fragments += step.fragments
        self.rejoined_fragments += step.changed_fragments
        self.failed_joins += len(step.failed)
        for column, message in step.failed:
            self._add_error(f"{column}: {message}")

    def count_failure(self, failure: Failure) -> None:
        """Count a failed attempt, with its message."""
        self.failures += 1
        self._add_error(failure.message)

    def _add_error(self, message: str) -> None:
        if len(self.errors) < ERRORS_KEPT and message not in self.errors:
            self.errors.append(message)
