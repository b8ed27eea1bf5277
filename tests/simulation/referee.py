"""Watches a simulation with a ledger of its own, and raises :class:`InvariantViolation` at the first event that breaks a rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.simulation.work import Grant, SimTask
from warehouse.scheduling.task_states import STUCK_LEASES, AttemptLimits, TaskState, TaskStatus


class InvariantViolation(AssertionError):
    """The queue broke one of the rules that workers rely on."""


@dataclass(slots=True)
class _Entry:
    """What must be true of a task by what was seen. ``until``: when its holder's lease runs out; None: nobody holds it."""

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
    """How tasks ended: committed, quarantined after attempts that raised, or after workers that were lost.

    ``innocent``: quarantined though nothing was wrong with them.
    """

    done: int
    raised: int
    lost: int
    innocent: int


class Referee:
    """Told of all that workers ask and the queue answers. ``statuses``: what the queue says, to compare with."""

    def __init__(self, statuses: Mapping[int, TaskStatus], limits: AttemptLimits, lease_secs: float) -> None:
        self._statuses, self._limits, self._lease_secs = statuses, limits, lease_secs
        self._entries: dict[int, _Entry] = {}

    def granted(self, grants: Sequence[Grant], clock: float) -> None:
        """The queue gave these tasks to somebody whose clock says ``clock``."""
        for grant in grants:
            entry = self._entries.setdefault(grant.task.task_id, _Entry())
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
        """Somebody asked to commit, and these were accepted."""
        for grant, entry in self._judged(asked, answered):
            entry.commits += 1
            self._demand(entry.commits == 1, grant, "committed twice")

    def beaten(self, asked: Sequence[Grant], answered: Sequence[Grant], clock: float) -> None:
        """Somebody asked to keep these."""
        for grant, entry in self._judged(asked, answered):
            entry.until = clock + self._lease_secs
            self._compare(grant, entry)

    def released(self, asked: Sequence[Grant], answered: Sequence[Grant]) -> None:
        """Somebody gave these back."""
        for grant, entry in self._judged(asked, answered):
            entry.attempts -= 1
            self._compare(grant, entry)

    def failed(self, grant: Grant, state: TaskState | None) -> None:
        """Somebody said that an attempt failed, and the task is in this state now; None: that was not for it to say."""
        for _, entry in self._judged([grant], [grant] if state else []):
            entry.failures += 1
            entry.quarantined = entry.failures >= self._limits.max_attempts
            expected = TaskState.FAILED if entry.quarantined else TaskState.QUEUED
            self._demand(state is expected, grant, f"{state} after {entry.failures} failures")
            self._demand(entry.failures == entry.attempts - entry.losses, grant, "its failures are counted wrongly")
            self._compare(grant, entry)

    def requeued(self, task_id: int) -> None:
        """A finished task is wanted again: its counts begin anew, its fences go on."""
        entry = self._entries.setdefault(task_id, _Entry())
        self._entries[task_id] = _Entry(fence=entry.fence)

    def dropped(self, task_id: int) -> None:
        """A task is wanted no more: nobody holds it."""
        self._entries.setdefault(task_id, _Entry()).until = None

    def expired(self, task_id: int, clock: float) -> None:
        """The queue ended the lease of a task that no client waits for."""
        entry = self._entries[task_id]
        lost = entry.until is not None and not clock <= entry.until <= clock + STUCK_LEASES * self._lease_secs
        if not lost:
            raise InvariantViolation(f"expired before its time: task {task_id}")
        entry.until = None
        entry.losses += 1

    def ending(self, tasks: Iterable[SimTask]) -> Ending:
        """How every task ended. Raises :class:`InvariantViolation` if one is lost, stuck, or ended without a cause."""
        counts = {"done": 0, "raised": 0, "lost": 0, "innocent": 0}
        for task in tasks:
            entry, status = self._entries.get(task.task_id, _Entry()), self._statuses[task.task_id]
            if status.state is TaskState.DONE:
                self._demand(entry.commits == 1, task, "done, and nobody committed it")
                self._demand(task.raises < self._limits.max_attempts and not task.kills, task, "done, and cannot be")
                counts["done"] += 1
                continue
            self._demand(status.state is TaskState.FAILED, task, f"left {status.state}")
            if entry.quarantined:
                counts["raised"] += 1
                innocent = task.raises < self._limits.max_attempts
            else:
                self._demand(entry.losses + 1 >= self._limits.max_losses, task, "quarantined without a cause")
                counts["lost"] += 1
                innocent = not task.kills
            counts["innocent"] += innocent
        return Ending(**counts)

    def _judged(self, asked: Sequence[Grant], answered: Sequence[Grant]) -> list[tuple[Grant, _Entry]]:
        """Whom the queue believed. It must be exactly those that hold their task, who (but for a beat) let it go now."""
        believed = {(grant.task.task_id, grant.fence, grant.lease) for grant in answered}
        found = []
        for grant in asked:
            entry = self._entries[grant.task.task_id]
            mine = entry.until is not None and (entry.fence, entry.lease) == (grant.fence, grant.lease)
            mine = mine and not self._given_up(grant.task, entry)
            accepted = (grant.task.task_id, grant.fence, grant.lease) in believed
            self._demand(accepted == mine, grant, "believed without the fence" if accepted else "not believed")
            if mine:
                entry.until = None
                found.append((grant, entry))
        return found

    def _given_up(self, task: SimTask, entry: _Entry) -> bool:
        """Whether the queue quarantined the task because its last worker was lost too, of which nobody is told."""
        status = self._statuses[task.task_id]
        return status.state is TaskState.FAILED and entry.losses + 1 >= self._limits.max_losses

    def _compare(self, grant: Grant, entry: _Entry) -> None:
        status = self._statuses[grant.task.task_id]
        counts = (status.fence, status.attempts, status.losses)
        self._demand(counts == (entry.fence, entry.attempts, entry.losses), grant, f"the queue counts {counts}")

    def _demand(self, fair: bool, what: Grant | SimTask, why: str) -> None:
        if not fair:
            raise InvariantViolation(f"{why}: {what}")
