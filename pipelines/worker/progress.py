"""How far a worker is with what is queued: counted in memos, foretold in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """``tasks_done`` of ``tasks_total`` are computed or have failed; the total is what this worker leased and what is queued.

    ``rows`` are events of finished ``fragments``, each counted once, ``raw_bytes`` the raw columns read for them, as they lie in memory.
    ``left_secs``: how long the rest takes if it goes on so and no other worker helps; None while nothing is known.
    ``waits_for``: tasks that it can only wait for now: others hold them, or they failed and are not due yet.
    """

    tasks_done: int = 0
    tasks_total: int = 0
    fragments: int = 0
    rows: int = 0
    raw_bytes: int = 0
    left_secs: float | None = None
    waits_for: int = 0


#: Called after every change.
OnWork = Callable[[WorkProgress], None]


class WorkMeter:
    """Counts work as it is leased and done. Times are monotonic seconds of the caller's clock.

    The rest is foretold by the tasks' estimated seconds of one core: what was done of them in the time that computing took.
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

    def leased(self, tasks: int, work_secs: float, queued: int, now: float) -> None:
        """``tasks`` of ``work_secs`` estimated seconds are to be computed from ``now`` on; ``queued`` others wait."""
        self.progress = replace(self.progress, waits_for=0)
        self._open_tasks, self._open_secs = tasks, work_secs
        self._leased_tasks += tasks
        self._leased_secs += work_secs
        self._queued, self._since = queued, now
        self._report_progress(now)

    def waits(self, tasks: int) -> None:
        """Nothing can be leased, and ``tasks`` are not finished."""
        self.progress = replace(self.progress, waits_for=tasks)

    def finished(self, tasks: int, work_secs: float, rows: int, raw_bytes: int, now: float) -> None:
        """A fragment came back: so many of its tasks are off the queue, or have failed."""
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
        self._report_progress(now)

    def stopped(self, now: float) -> None:
        """The job ended; what is open still was given back."""
        if self._since is not None:
            self._ran_secs += now - self._since
        self._queued += self._open_tasks
        self._open_tasks, self._open_secs, self._since = 0, 0.0, None
        self._report_progress(now)

    def _report_progress(self, now: float) -> None:
        ran_secs = self._ran_secs + (now - self._since if self._since is not None else 0.0)
        a_task_secs = self._leased_secs / self._leased_tasks if self._leased_tasks else 0.0
        rest_secs = self._open_secs + self._queued * a_task_secs
        total = self.progress.tasks_done + self._open_tasks + self._queued
        left = rest_secs * ran_secs / self._done_secs if self._done_secs > 0 else None
        self.progress = replace(self.progress, tasks_total=total, left_secs=left)
