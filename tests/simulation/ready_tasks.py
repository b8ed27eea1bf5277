"""Leasable tasks by client and partition: the cost of a lease is independent of the queue's length."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.work import Place, SimTask
from warehouse.scheduling.lease_order import place_rank

_Rank = tuple[int, str, str]


class ReadyTasks:
    """A set of tasks; adding or removing one takes logarithmic time per waiting client."""

    def __init__(self) -> None:
        self._tasks: defaultdict[Place, dict[str, SimTask]] = defaultdict(dict)
        self._waiting: defaultdict[str, int] = defaultdict(int)
        # The number of tasks by priority, of a client in a partition.
        self._priorities: defaultdict[tuple[str, Place], dict[int, int]] = defaultdict(dict)
        # Partitions by rank; outdated entries are removed when they are popped.
        self._ranks: defaultdict[str, list[_Rank]] = defaultdict(list)

    def __contains__(self, task: SimTask) -> bool:
        return task.memo_key in self._tasks[task.place]

    def add(self, task: SimTask) -> None:
        """Add a task. A task without waiting clients is ignored: it is never leased."""
        if not task.priorities:
            return
        self._tasks[task.place][task.memo_key] = task
        for client, priority in task.priorities.items():
            self._waiting[client] += 1
            counts = self._priorities[client, task.place]
            if not counts or priority > max(counts):
                heapq.heappush(self._ranks[client], place_rank(priority, *task.place))
            counts[priority] = counts.get(priority, 0) + 1

    def remove(self, task: SimTask) -> None:
        """Remove a task, if it is in the set."""
        if self._tasks[task.place].pop(task.memo_key, None) is None:
            return
        for client, priority in task.priorities.items():
            self._waiting[client] -= 1
            counts = self._priorities[client, task.place]
            top = max(counts)
            counts[priority] -= 1
            if not counts[priority]:
                del counts[priority]
                if counts and max(counts) != top:
                    heapq.heappush(self._ranks[client], place_rank(max(counts), *task.place))

    def waiting(self) -> frozenset[str]:
        """The clients that wait for some task."""
        return frozenset(name for name, count in self._waiting.items() if count)

    def tasks(self, place: Place) -> list[SimTask]:
        """All tasks of a partition."""
        return list(self._tasks[place].values())

    @contextmanager
    def places(self, client: str) -> Iterator[Iterator[Place]]:
        """The partitions with tasks of the client, by rank. The set must not change meanwhile."""
        seen: dict[Place, _Rank] = {}
        ranks = self._ranks[client]

        def iterate() -> Iterator[Place]:
            while ranks:
                rank = heapq.heappop(ranks)
                place = (rank[1], rank[2])
                counts = self._priorities[client, place]
                if place not in seen and counts and place_rank(max(counts), *place) == rank:
                    seen[place] = rank
                    yield place

        try:
            yield iterate()
        finally:
            for rank in seen.values():
                heapq.heappush(ranks, rank)
