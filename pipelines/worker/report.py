"""What a worker did so far, for whoever looks: the command's screen, the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from warehouse.queue.failures import Failure

#: A worker may run for months, and meet one broken component in every fragment.
ERRORS_KEPT = 100


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
