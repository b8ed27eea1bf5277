"""The samples of features in the commits of a job, read once each: for the catalog, and for a plan that follows the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.terminal.output import say
from transforms.errors import HeadraceError

if TYPE_CHECKING:
    from trainer.job.feedback.plan_feedback import PlanFeedback
    from trainer.run.progress.part_statistics import CommitStatistics
    from trainer.run.progress.run_statistics import Record


class CommitSamples:
    """Reads the samples of commits in order, while a job runs.

    Args:
        run_dir: of the run, a local folder or a bucket.
        record: records a sample in the catalog.
        feedback: looks at samples; None: the plan of the tables is fixed.
    """

    def __init__(self, run_dir: str, record: Record, feedback: PlanFeedback | None) -> None:
        self._run_dir, self._record, self._feedback = run_dir, record, feedback
        self._recorded = self._seen = 0

    def begin(self, newest: int) -> None:
        """A job begins from a commit: it may not be recorded yet, and earlier ones may not be looked at, if the command before was killed."""
        self._recorded = max(newest - 1, 0)
        self._seen = self._recorded if self._feedback is None else min(self._recorded, self._feedback.log.looked_at)

    def see(self, newest: int, left_steps: float | None) -> None:
        """Read the commits up to the newest one that were not read before.

        ``left_steps``: that are still to be trained after it; None: no end is known.
        """
        if newest <= self._seen:
            return
        for commit in self._new(newest):
            found = self._read(commit)
            if found is None:
                continue
            if commit > self._recorded:
                self._record(found.run, commit, found.features)
            if self._feedback is not None:
                sampled = {one.name: one.statistics for one in found.features.values()}
                self._feedback.committed(commit, found.attempt, found.step, sampled, left_steps)
        self._seen, self._recorded = newest, max(newest, self._recorded)

    def _new(self, newest: int) -> list[int]:
        """The commits after those that were read; removed ones are left out where many may be."""
        from trainer.run.progress.part_statistics import stored_commits

        if newest == self._seen + 1:
            return [newest]
        try:
            stored = stored_commits(self._run_dir)
        except HeadraceError as error:
            say(f"the statistics of commits up to {newest} cannot be read, training goes on: {error}")
            return []
        return [commit for commit in stored if self._seen < commit <= newest]

    def _read(self, commit: int) -> CommitStatistics | None:
        """The sample of a commit; None: it has none, was removed, or cannot be read."""
        from trainer.run.progress.part_statistics import read_commit_statistics

        try:
            return read_commit_statistics(self._run_dir, commit)
        except HeadraceError as error:
            say(f"the statistics of commit {commit} cannot be read, training goes on: {error}")
            return None
