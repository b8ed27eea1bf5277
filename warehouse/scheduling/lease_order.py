"""In which order tasks are leased once it is a client's turn. Pure; :mod:`warehouse.queue.lease` asks the catalog for the same order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

#: Below every priority: of a task that the client does not wait for.
NOT_ITS_OWN = -(2**31)


class Waited(Protocol):
    """A leasable task, the fragment that it reads, and who waits for it: the highest priority of each client's live models."""

    @property
    def task_id(self) -> int:
        """Its number, in the order of arrival."""
        ...

    @property
    def fragment(self) -> int:
        """The number of its fragment."""
        ...

    @property
    def priorities(self) -> Mapping[str, int]:
        """By client."""
        ...


_W = TypeVar("_W", bound=Waited)


def place_rank(priority: int, table: str, partition: str) -> tuple[int, str, str]:
    """What a client's partitions are sorted by: its most urgent first, then the oldest. ``priority``: of its own tasks."""
    return -priority, table, partition


def in_lease_order(client: str, tasks: Iterable[_W]) -> list[_W]:
    """Tasks of one partition, fragment by fragment: where the client's most urgent are first, in each its own before others'."""
    listed = list(tasks)
    most: dict[int, int] = {}
    for task in listed:
        own = task.priorities.get(client, NOT_ITS_OWN)
        most[task.fragment] = max(own, most.get(task.fragment, NOT_ITS_OWN))

    def rank(task: _W) -> tuple[int, ...]:
        own = task.priorities.get(client, NOT_ITS_OWN)
        return -most[task.fragment], task.fragment, -own, -max(task.priorities.values()), task.task_id

    return sorted(listed, key=rank)
