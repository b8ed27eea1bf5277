"""The progress of a worker: finished memos, and the estimated remaining time in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """The progress of a worker.

    Attributes:
        tasks_done: Tasks that were computed or failed.
        tasks_total: Tasks that this worker leased, and those queued.
        fragments: Finished fragments.
        rows: Their events, each counted once.
        raw_bytes: The size in memory of their raw columns.
        left_secs: The remaining time at the present rate, without other workers; None if unknown.
        waits_for: Tasks that are leased by other workers, or failed and not due yet.
    """

    tasks_done: int = 0
    tasks_total: int = 0
    fragments: int = 0
    rows: int = 0
    raw_bytes: int = 0
    left_secs: float | None = None
    waits_for: int = 0


#: Called after every change of the progress.
OnWork = Callable[[WorkProgress], None]


#: After this time the measured pace counts as much as the estimated one.
_TRUSTED_SECS = 10.0


def _pace(ran_secs: float, done_secs: float) -> float:
    """Seconds per estimated core second: between 1, as estimated, and as measured, the closer the longer it was measured."""
    return (ran_secs / done_secs) ** (ran_secs / (ran_secs + _TRUSTED_SECS))


class WorkMeter:
    """Measures the progress of a worker. Times are monotonic seconds of the caller's clock.

    The remaining time is the estimated core seconds of the open tasks, times the measured seconds per estimated second of finished
    ones. The latter is dominated at first by the start of the job, so it counts by the time over which it was measured.
    """

    def __init__(self) -> None:
        self.progress = WorkProgress()
        self._open_secs = 0.0
        self._open_tasks = 0
        self._done_secs = 0.0
        self._leased_secs = 0.0
        self._leased_tasks = 0
        self._queued = 0
        self._ran_secs = 0.0
        self._since: float | None = None

    def record_lease(self, tasks: int, work_secs: float, queued: int, now: float) -> None:
        """Record ``tasks`` leased at ``now``, of ``work_secs`` estimated core seconds; ``queued`` others wait."""
        self.progress = replace(self.progress, waits_for=0)
        self._open_tasks, self._open_secs = tasks, work_secs
        self._leased_tasks += tasks
        self._leased_secs += work_secs
        self._queued, self._since = queued, now
        self._update(now)

    def record_wait(self, tasks: int) -> None:
        """Record that nothing can be leased while ``tasks`` are unfinished."""
        self.progress = replace(self.progress, waits_for=tasks)

    def record_fragment(self, tasks: int, work_secs: float, rows: int, raw_bytes: int, now: float) -> None:
        """Record a finished fragment with its committed and failed tasks."""
        self._open_tasks -= tasks
        self._open_secs = max(self._open_secs - work_secs, 0.0) if self._open_tasks else 0.0
        self._done_secs += work_secs
        done = self.progress
        self.progress = replace(
            done,
            tasks_done=done.tasks_done + tasks,
            fragments=done.fragments + 1,
            rows=done.rows + rows,
            raw_bytes=done.raw_bytes + raw_bytes,
        )
        self._update(now)

    def record_job_end(self, now: float) -> None:
        """Record the end of the job; its open tasks were released."""
        if self._since is not None:
            self._ran_secs += now - self._since
        self._queued += self._open_tasks
        self._open_tasks, self._open_secs, self._since = 0, 0.0, None
        self._update(now)

    def _update(self, now: float) -> None:
        ran_secs = self._ran_secs + (now - self._since if self._since is not None else 0.0)
        secs_per_task = self._leased_secs / self._leased_tasks if self._leased_tasks else 0.0
        rest_secs = self._open_secs + self._queued * secs_per_task
        total = self.progress.tasks_done + self._open_tasks + self._queued
        left = rest_secs * _pace(ran_secs, self._done_secs) if self._done_secs > 0 else None
        self.progress = replace(self.progress, tasks_total=total, left_secs=left)
