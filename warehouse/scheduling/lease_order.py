"""The order in which the tasks of a client are leased. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

#: The priority of a task that the client does not wait for: below every priority.
NOT_ITS_OWN = -(2**31)


class Waited(Protocol):
    """A leasable task with its fragment and the clients that wait for it."""

    @property
    def memo_key(self) -> str:
        """The key of the memo."""
        ...

    @property
    def fragment(self) -> int:
        """The number of the fragment that it reads."""
        ...

    @property
    def priorities(self) -> Mapping[str, int]:
        """The highest priority of the live models that wait for it, by client."""
        ...


_W = TypeVar("_W", bound=Waited)


def place_rank(priority: int, table: str, partition: str) -> tuple[int, str, str]:
    """The sort key of a client's partitions: highest priority of its own tasks first, then oldest."""
    return -priority, table, partition


def in_lease_order(client: str, tasks: Iterable[_W]) -> list[_W]:
    """Tasks of one partition by fragment: most urgent fragments first, in each the client's own tasks first."""
    listed = list(tasks)
    most: dict[int, int] = {}
    ranks: dict[int, tuple[int, int]] = {}  # many tasks have the same mapping of priorities
    for task in listed:
        priorities = task.priorities
        if (known := ranks.get(id(priorities))) is None:
            known = ranks[id(priorities)] = -priorities.get(client, NOT_ITS_OWN), -max(priorities.values())
        most[task.fragment] = max(-known[0], most.get(task.fragment, NOT_ITS_OWN))

    def rank(task: _W) -> tuple[int, int, tuple[int, int], str]:
        return -most[task.fragment], task.fragment, ranks[id(task.priorities)], task.memo_key

    return sorted(listed, key=rank)
