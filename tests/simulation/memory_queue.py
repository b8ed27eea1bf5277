"""The queue of :mod:`warehouse.queue` in memory, with the same decisions on values.

``now`` of an operation is from the clock of the worker, as in production, where clocks differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tests.simulation.due_tasks import DueTasks
from tests.simulation.ready_tasks import ReadyTasks
from tests.simulation.work import Grant, Place, SimTask
from warehouse.scheduling.batching import BatchBudget, BatchCandidate, batch_limit_after_losses, fill_batch_from
from warehouse.scheduling.fair_shares import (
    FLOOR_SHARE,
    Charge,
    ClientShare,
    apply_corrections,
    charge_by_client,
    charge_corrections,
    charged_shares,
    next_client,
    update_clients,
)
from warehouse.scheduling.lease_order import in_lease_order
from warehouse.scheduling.task_states import (
    DEFAULT_LIMITS,
    AttemptLimits,
    TaskChange,
    TaskState,
    TaskStatus,
    apply_change,
    commit_change,
    drop_change,
    expire_change,
    failure_change,
    heartbeat_change,
    holds,
    is_abandoned,
    is_given_up,
    lease_change,
    quarantine_change,
    release_change,
    requeue_change,
)

#: Called after every change with the task, its old and its new status.
Watcher = Callable[[SimTask, TaskStatus | None, TaskStatus], None]


class MemoryQueue:
    """A queue with these ``clients``; the other settings are those of :class:`~warehouse.config.WarehouseConfig`."""

    def __init__(
        self,
        clients: Iterable[ClientShare],
        *,
        lease_secs: float = 60.0,
        limits: AttemptLimits = DEFAULT_LIMITS,
        retry_backoff_secs: float = 0.5,
        floor_share: float = FLOOR_SHARE,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self.clients = tuple(clients)
        self.lease_secs, self.limits = lease_secs, limits
        self._retry_backoff_secs, self._floor_share, self._watchers = retry_backoff_secs, floor_share, watchers
        self.tasks: dict[str, SimTask] = {}
        self.statuses: dict[str, TaskStatus] = {}
        self.unfinished = 0
        self._ready = ReadyTasks()
        self._due = DueTasks(self.statuses.__getitem__, lease_secs)

    def add(self, *tasks: SimTask) -> None:
        """Queue new tasks."""
        for task in tasks:
            self.tasks[task.memo_key] = task
            self._set(task, TaskStatus())

    def reestimate(self, key: str, secs: float, memo_bytes: float) -> None:
        """Change the estimated costs of a task."""
        task = replace(self.tasks[key], secs=secs, memo_bytes=memo_bytes)
        was_ready = self.tasks[key] in self._ready
        if was_ready:
            self._ready.remove(self.tasks[key])
            self._ready.add(task)
        self.tasks[key] = task

    def lease(self, now: float, name: str, budget: BatchBudget) -> tuple[Grant, ...]:
        """:func:`warehouse.queue.lease.lease_tasks`."""
        self._bring_up_to(now)
        waiting = self._ready.waiting()
        if not waiting:
            return ()
        client = next_client(self.clients, waiting)

        def leasable(place: Place, most: int) -> list[SimTask]:
            return in_lease_order(client, self._ready.tasks(place))[:most]

        def candidates(tasks: Sequence[SimTask]) -> list[BatchCandidate]:
            return [self._candidate(task, budget) for task in tasks]

        with self._ready.places(client) as places:
            taken = fill_batch_from(places, leasable, candidates, budget)
        payers = {task.memo_key: task.priorities for task in taken}
        secs = charge_by_client({task.memo_key: task.secs for task in taken}, payers)
        share = charged_shares(self.clients, waiting, secs, self._floor_share)
        self.clients = update_clients(self.clients, waiting, client, secs, self._floor_share)
        return tuple(
            self._grant(task, client, name, now, Charge(task.secs, {one: share[one] for one in task.priorities}))
            for task in taken
        )

    def beat(self, now: float, grants: Iterable[Grant]) -> tuple[Grant, ...]:
        """:func:`warehouse.queue.lease.heartbeat`."""
        return self._change_held(grants, heartbeat_change(now, self.lease_secs))

    def commit(self, done: Iterable[tuple[Grant, float]]) -> tuple[Grant, ...]:
        """:func:`warehouse.queue.commit.commit_memos`, of grants and the seconds they took; returns those that were still owned."""
        listed = list(done)
        took = {grant.task.memo_key: secs for grant, secs in listed}
        held = self._change_held((grant for grant, _ in listed), commit_change())
        self._correct_charges((grant.charge, took[grant.task.memo_key]) for grant in held)
        return held

    def _correct_charges(self, done: Iterable[tuple[Charge, float]]) -> None:
        self.clients = apply_corrections(self.clients, charge_corrections(done))

    def release(self, grants: Iterable[Grant]) -> tuple[Grant, ...]:
        """:func:`warehouse.queue.lease.release_tasks`; returns those that were still owned."""
        held = self._change_held(grants, release_change())
        self._correct_charges((grant.charge, 0.0) for grant in held)
        return held

    def fail(self, now: float, grant: Grant, draw: float) -> TaskState | None:
        """:func:`warehouse.queue.fail.fail_tasks`."""
        change = failure_change(grant.attempt, grant.losses, self.limits, now, self._retry_backoff_secs, draw)
        return change.state if self._change_held([grant], change) else None

    def requeue(self, key: str, priorities: Mapping[str, int] | None = None) -> None:
        """Queue a finished task again, for the same or other clients."""
        if priorities is not None:
            self.tasks[key] = replace(self.tasks[key], priorities=priorities)
        before = self.statuses[key]
        after = apply_change(before, requeue_change())
        self._set(self.tasks[key], TaskStatus() if before.state is TaskState.DONE else after)  # a done task is deleted

    def wait(self, key: str, priorities: Mapping[str, int]) -> None:
        """Change the clients that wait for a task: a model was submitted, or retired."""
        self._ready.remove(self.tasks[key])
        self.tasks[key] = replace(self.tasks[key], priorities=priorities)
        self._due.watch(key)

    def drop(self, key: str) -> None:
        """Drop a task; its lease ends."""
        self._set(self.tasks[key], apply_change(self.statuses[key], drop_change()))

    def _bring_up_to(self, now: float) -> None:
        for key, leasable in self._due.turned(now):
            task, status = self.tasks[key], self.statuses[key]
            if not leasable:
                self._ready.remove(task)
            elif is_given_up(status, now, self.limits, self.lease_secs):
                self._set(task, apply_change(status, quarantine_change()))
            elif is_abandoned(status, now, self.lease_secs, is_wanted=bool(task.priorities)):
                self._set(task, apply_change(status, expire_change()))
            else:
                self._ready.add(task)

    def _candidate(self, task: SimTask, budget: BatchBudget) -> BatchCandidate:
        status = self.statuses[task.memo_key]
        losses = status.losses + (status.state is TaskState.LEASED)
        if not losses:
            return BatchCandidate(task.fragment, task.raw_bytes, task.memo_bytes)
        most = batch_limit_after_losses(losses, budget.tasks, self.limits.max_losses)
        return BatchCandidate(task.fragment, task.raw_bytes, task.memo_bytes, most)

    def _grant(self, task: SimTask, client: str, name: str, now: float, charge: Charge) -> Grant:
        before = self.statuses[task.memo_key]
        change = lease_change(now, self.lease_secs, expired=before.state is TaskState.LEASED)
        status = apply_change(before, change, name)
        self._set(task, status)
        return Grant(task, status.fence, name, client, status.attempts, status.losses, charge)

    def _change_held(self, grants: Iterable[Grant], change: TaskChange) -> tuple[Grant, ...]:
        held = tuple(one for one in grants if holds(self.statuses[one.task.memo_key], one.fence, one.lease))
        for grant in held:
            key = grant.task.memo_key
            self._set(self.tasks[key], apply_change(self.statuses[key], change))
        return held

    def _set(self, task: SimTask, status: TaskStatus) -> None:
        before = self.statuses.get(task.memo_key)
        self.statuses[task.memo_key] = status
        self.unfinished += _is_open(status) - _is_open(before)
        self._ready.remove(task)
        self._due.watch(task.memo_key)
        for watcher in self._watchers:
            watcher(task, before, status)


def _is_open(status: TaskStatus | None) -> bool:
    return status is not None and status.state in (TaskState.QUEUED, TaskState.LEASED)
