"""Check the invariants of a simulation by an independent record of all events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.simulation.work import Grant, SimTask
from warehouse.scheduling.task_states import STUCK_LEASES, AttemptLimits, TaskState, TaskStatus


class InvariantViolation(AssertionError):
    """An event violated an invariant of the queue."""


@dataclass(slots=True)
class _Entry:
    """The expected state of a task; ``until``: the end of its lease, None without one."""

    fence: int = 0
    lease: str = ""
    until: float | None = None
    attempts: int = 0
    losses: int = 0
    failures: int = 0
    commits: int = 0
    quarantined: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """Numbers of finished tasks.

    Attributes:
        done: Committed.
        raised: Quarantined after failed attempts.
        lost: Quarantined after lost workers.
        faultless: Quarantined without a fault of their own.
    """

    done: int
    raised: int
    lost: int
    faultless: int


class Referee:
    """Records all requests of workers and the queue's answers; ``statuses`` are those of the queue, to compare."""

    def __init__(self, statuses: Mapping[str, TaskStatus], limits: AttemptLimits, lease_secs: float) -> None:
        self._statuses, self._limits, self._lease_secs = statuses, limits, lease_secs
        self._entries: dict[str, _Entry] = {}

    def granted(self, grants: Sequence[Grant], clock: float) -> None:
        """The queue leased these tasks to a worker whose clock is ``clock``."""
        for grant in grants:
            entry = self._entries.setdefault(grant.task.memo_key, _Entry())
            self._demand(not entry.commits and not entry.quarantined, grant, "leased though it is finished")
            if entry.until is not None:
                void = entry.until > clock + STUCK_LEASES * self._lease_secs
                self._demand(entry.until < clock or void, grant, "held twice: its lease had not run out")
                entry.losses += 1
            self._demand(grant.fence == entry.fence + 1, grant, f"fence {grant.fence} after {entry.fence}")
            entry.fence, entry.lease, entry.until = grant.fence, grant.lease, clock + self._lease_secs
            entry.attempts += 1
            self._demand((grant.attempt, grant.losses) == (entry.attempts, entry.losses), grant, "its counts are wrong")
            self._compare(grant, entry)

    def committed(self, asked: Sequence[Grant], answered: Sequence[Grant]) -> None:
        """A worker committed memos; ``answered`` were accepted."""
        for grant, entry in self._judged(asked, answered):
            entry.commits += 1
            self._demand(entry.commits == 1, grant, "committed twice")

    def beaten(self, asked: Sequence[Grant], answered: Sequence[Grant], clock: float) -> None:
        """A worker renewed leases."""
        for grant, entry in self._judged(asked, answered):
            entry.until = clock + self._lease_secs
            self._compare(grant, entry)

    def released(self, asked: Sequence[Grant], answered: Sequence[Grant]) -> None:
        """A worker released leases."""
        for grant, entry in self._judged(asked, answered):
            entry.attempts -= 1
            self._compare(grant, entry)

    def failed(self, grant: Grant, state: TaskState | None) -> None:
        """A worker reported a failed attempt; ``state``: the new state, None for a rejected report."""
        for _, entry in self._judged([grant], [grant] if state else []):
            entry.failures += 1
            entry.quarantined = entry.failures >= self._limits.max_attempts
            expected = TaskState.FAILED if entry.quarantined else TaskState.QUEUED
            self._demand(state is expected, grant, f"{state} after {entry.failures} failures")
            self._demand(entry.failures == entry.attempts - entry.losses, grant, "its failures are counted wrongly")
            self._compare(grant, entry)

    def requeued(self, key: str) -> None:
        """A finished task was queued again: its counts are 0, and its fencing token continues unless it was done."""
        entry = self._entries.setdefault(key, _Entry())
        self._entries[key] = _Entry(fence=0 if entry.commits else entry.fence)

    def dropped(self, key: str) -> None:
        """A task was dropped."""
        self._entries.setdefault(key, _Entry()).until = None

    def expired(self, key: str, clock: float) -> None:
        """The queue ended the expired lease of a task that no client waits for."""
        entry = self._entries[key]
        lost = entry.until is not None and not clock <= entry.until <= clock + STUCK_LEASES * self._lease_secs
        if not lost:
            raise InvariantViolation(f"expired before its time: task {key}")
        entry.until = None
        entry.losses += 1

    def ending(self, tasks: Iterable[SimTask]) -> Ending:
        """Count the finished tasks. Raises :class:`InvariantViolation` if one is unfinished or wrongly finished."""
        counts = {"done": 0, "raised": 0, "lost": 0, "faultless": 0}
        for task in tasks:
            entry, status = self._entries.get(task.memo_key, _Entry()), self._statuses[task.memo_key]
            if status.state is TaskState.DONE:
                self._demand(entry.commits == 1, task, "done without a commit")
                self._demand(task.raises < self._limits.max_attempts and not task.kills, task, "done, and cannot be")
                counts["done"] += 1
                continue
            self._demand(status.state is TaskState.FAILED, task, f"left {status.state}")
            if entry.quarantined:
                counts["raised"] += 1
                faultless = task.raises < self._limits.max_attempts
            else:
                self._demand(entry.losses + 1 >= self._limits.max_losses, task, "quarantined without a cause")
                counts["lost"] += 1
                faultless = not task.kills
            counts["faultless"] += faultless
        return Ending(**counts)

    def _judged(self, asked: Sequence[Grant], answered: Sequence[Grant]) -> list[tuple[Grant, _Entry]]:
        """The accepted grants, which must be exactly those with a valid lease; the lease ends, except at a heartbeat."""
        valid = {(grant.task.memo_key, grant.fence, grant.lease) for grant in answered}
        found = []
        for grant in asked:
            entry = self._entries[grant.task.memo_key]
            mine = entry.until is not None and (entry.fence, entry.lease) == (grant.fence, grant.lease)
            mine = mine and not self._given_up(grant.task, entry)
            accepted = (grant.task.memo_key, grant.fence, grant.lease) in valid
            self._demand(
                accepted == mine,
                grant,
                "accepted without the fencing token" if accepted else "rejected with the fencing token",
            )
            if mine:
                entry.until = None
                found.append((grant, entry))
        return found

    def _given_up(self, task: SimTask, entry: _Entry) -> bool:
        """Whether the queue quarantined the task because its last worker was lost too."""
        status = self._statuses[task.memo_key]
        return status.state is TaskState.FAILED and entry.losses + 1 >= self._limits.max_losses

    def _compare(self, grant: Grant, entry: _Entry) -> None:
        status = self._statuses[grant.task.memo_key]
        counts = (status.fence, status.attempts, status.losses)
        self._demand(counts == (entry.fence, entry.attempts, entry.losses), grant, f"the queue counts {counts}")

    def _demand(self, fair: bool, what: Grant | SimTask, why: str) -> None:
        if not fair:
            raise InvariantViolation(f"{why}: {what}")
