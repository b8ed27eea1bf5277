"""The times of the steps of attempts, as the status of a job shows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer.job.control.messages import JobStatus


@dataclass(slots=True)
class _AttemptTimes:
    """The first and the last step of an attempt that were seen, and when."""

    partition: str
    first_step: int
    first_secs: float
    last_step: int
    last_secs: float


@dataclass(slots=True)
class StepTimes:
    """Watches the steps of the host of rank 0; all hosts take the same ones.

    Attributes:
        attempts: the times of the newest attempts, by number.
    """

    attempts: dict[int, _AttemptTimes] = field(default_factory=dict)

    def see(self, status: JobStatus, at_secs: float) -> None:
        """Take a status that was read at ``at_secs`` of a monotonic clock."""
        for one in status.members:
            if (
                one.rank == 0
                and one.progress is not None
                and one.progress.attempt == status.attempt
                and one.progress.step
            ):
                self._take(status, one.progress.step, at_secs)

    def _take(self, status: JobStatus, steps: int, at_secs: float) -> None:
        known = self.attempts.get(status.attempt)
        if known is None:
            self.attempts[status.attempt] = _AttemptTimes(status.partition, steps, at_secs, steps, at_secs)
            for old in sorted(self.attempts)[:-4]:
                del self.attempts[old]
        elif steps > known.last_step:
            known.last_step, known.last_secs = steps, at_secs

    def step_secs(self, attempt: int) -> float | None:
        """The mean seconds of a step of an attempt; None for fewer than two looks at it."""
        one = self.attempts.get(attempt)
        if one is None or one.last_step == one.first_step:
            return None
        return (one.last_secs - one.first_secs) / (one.last_step - one.first_step)

    def pause_secs(self, attempt: int) -> float | None:
        """The time from the last step before an attempt to its first one, without that step; None if it is not known."""
        one, before = self.attempts.get(attempt), self.attempts.get(attempt - 1)
        if one is None or before is None:
            return None
        first = (self.step_secs(attempt) or 0.0) * one.first_step
        return max(0.0, one.first_secs - before.last_secs - first)
