"""What faults cost, from the statuses of a job. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer.job.control.messages import JobStatus
from trainer.scheduling.transitions import JobState

WORKING = frozenset({JobState.TRAINING, JobState.ENDING, JobState.DRAINING, JobState.COMMITTING})


@dataclass(frozen=True, slots=True)
class Interruption:
    """A crash or a preemption of a process.

    Attributes:
        role: the kind of the process.
        attempt: the attempt that had trained events; 0 if none had.
        trained_secs: since the last commit, or the beginning of the attempt if that is later.
        at_secs: when.
        ends_attempt: whether an attempt that was not committed is lost by it.
    """

    role: str
    attempt: int
    trained_secs: float
    at_secs: float
    ends_attempt: bool = False


@dataclass
class Accounts:
    """The attempts and commits of a job, and what interruptions cost. ``see`` gets every new status."""

    attempts: set[int] = field(default_factory=set)
    commits: dict[int, float] = field(default_factory=dict)
    restarts: int = 0
    crashes: list[Interruption] = field(default_factory=list)
    notices: list[Interruption] = field(default_factory=list)
    _last: tuple[JobStatus, float] | None = None

    def see(self, status: JobStatus, at_secs: float) -> None:
        """A status that came now."""
        if status.attempt:
            self.attempts.add(status.attempt)
        if status.commit_attempt:
            self.commits.setdefault(status.commit_attempt, at_secs)
        self._last = status, at_secs

    @property
    def has_trained(self) -> bool:
        """Whether an attempt has begun."""
        return bool(self.attempts)

    @property
    def is_training(self) -> bool:
        """Whether an attempt has trained events and is not committed, by the last status."""
        if self._last is None or self._last[0].state not in WORKING:
            return False
        status = self._last[0]
        reports = [one.progress for one in status.members if one.progress is not None]
        return any(one.events and one.attempt == status.attempt for one in reports)

    def interruption(self, role: str, at_secs: float, *, ends_attempt: bool | None = None) -> Interruption:
        """The cost of an interruption now, if its attempt is not committed.

        ``ends_attempt``: whether the attempt is lost by it; None: it is by that of a host.
        """
        ends = role == "host" if ends_attempt is None else ends_attempt
        if self._last is None or not self.is_training:
            return Interruption(role, 0, 0.0, at_secs, ends)
        status, seen_secs = self._last
        return Interruption(role, status.attempt, status.attempt_secs + at_secs - seen_secs, at_secs, ends)

    def lost_secs(self) -> list[float]:
        """For each crash, the training that was lost: 0 if its attempt was committed all the same.

        An attempt is lost once: to the first crash that ends it (of a host, or of a server's machine), or to its first crash.
        """
        charged: dict[int, Interruption] = {}
        for one in sorted(self.crashes, key=lambda crash: not crash.ends_attempt):
            charged.setdefault(one.attempt, one)
        newest = max(self.attempts, default=0)
        is_lost = {attempt: 0 < attempt < newest and attempt not in self.commits for attempt in charged}
        return [
            one.trained_secs if is_lost[one.attempt] and charged[one.attempt] is one else 0.0 for one in self.crashes
        ]

    def preempted(self, within_secs: float) -> tuple[int, int]:
        """The attempts that a notice to a host or a parameter server ended, and those of them that were committed within a time."""
        ended = [one for one in self.notices if one.role in ("host", "server") and one.attempt]
        kept = [one for one in ended if self.commits.get(one.attempt, float("inf")) - one.at_secs <= within_secs]
        return len(ended), len(kept)
