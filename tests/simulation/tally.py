"""Sums of a simulated queue and its waiting times, like :mod:`warehouse.queue.backlog`."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.simulation.work import SimTask
from warehouse.scheduling.backlog import Backlog, ClientBacklog
from warehouse.scheduling.task_states import TaskState, TaskStatus

_OPEN = (TaskState.QUEUED, TaskState.LEASED)


@dataclass(slots=True)
class _Sums:
    states: Counter[TaskState] = field(default_factory=Counter)
    secs: float = 0.0
    since: list[tuple[float, str]] = field(default_factory=list)


class Tally:
    """A watcher of a queue; ``clock``: virtual time; ``deadlines`` and ``weights``: by client."""

    def __init__(
        self, clock: Callable[[], float], deadlines: Mapping[str, float], weights: Mapping[str, float]
    ) -> None:
        self._clock, self._deadlines, self._weights = clock, deadlines, weights
        self._sums = {client: _Sums() for client in deadlines}
        self._wanted: dict[str, float] = {}
        self._fragments: Counter[int] = Counter()
        self.waits: defaultdict[str, list[float]] = defaultdict(list)
        self.finished_at = clock()

    def __call__(self, task: SimTask, before: TaskStatus | None, after: TaskStatus) -> None:
        """A task's status changed."""
        was_open, is_open = before is not None and before.state in _OPEN, after.state in _OPEN
        now = self._clock()
        if is_open and not was_open:
            self._wanted[task.memo_key] = now
        for client in task.priorities:
            sums = self._sums[client]
            if before is not None:
                sums.states[before.state] -= 1
            sums.states[after.state] += 1
            sums.secs += (is_open - was_open) * task.secs / len(task.priorities)
            if is_open and not was_open:
                heapq.heappush(sums.since, (now, task.memo_key))
            if after.state is TaskState.DONE:
                self.waits[client].append(now - self._wanted[task.memo_key])
        self._fragments[task.fragment] += is_open - was_open
        if was_open and not is_open:
            self.finished_at = now
            del self._wanted[task.memo_key]
            if not self._fragments[task.fragment]:
                del self._fragments[task.fragment]

    def backlog(self) -> Backlog:
        """The current backlog."""
        clients = tuple(self._client(name, sums) for name, sums in sorted(self._sums.items()))
        return Backlog(clients, len(self._fragments))

    def missed(self) -> dict[str, int]:
        """The number of tasks that were done after the deadline, by client."""
        return {
            client: sum(waited > deadline for waited in self.waits[client])
            for client, deadline in self._deadlines.items()
        }

    def _client(self, name: str, sums: _Sums) -> ClientBacklog:
        while sums.since and self._wanted.get(sums.since[0][1]) != sums.since[0][0]:
            heapq.heappop(sums.since)
        oldest_secs = self._clock() - sums.since[0][0] if sums.since else 0.0
        counted = sums.states
        tasks, leased = counted[TaskState.QUEUED] + counted[TaskState.LEASED], counted[TaskState.LEASED]
        return ClientBacklog(name, tasks, leased, counted[TaskState.FAILED], max(sums.secs, 0.0), 0.0, oldest_secs,
                             self._deadlines[name], self._weights.get(name, 1.0))  # fmt: skip
