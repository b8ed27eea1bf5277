"""The backlog: unfinished tasks of every client at one moment, with their estimated cost. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientBacklog:
    """One client's unfinished work.

    Attributes:
        client: The client.
        tasks: Tasks that are queued or leased.
        leased: Those that are leased.
        failed: Quarantined tasks; they are no work.
        secs: Estimated core seconds. A task that several clients wait for is divided equally.
        memo_bytes: Estimated bytes of memos, divided in the same way.
        oldest_secs: How long the oldest task has waited.
        deadline_secs: How long a task may wait.
        weight: The client's weight.
    """

    client: str
    tasks: int = 0
    leased: int = 0
    failed: int = 0
    secs: float = 0.0
    memo_bytes: float = 0.0
    oldest_secs: float = 0.0
    deadline_secs: float = 3600.0
    weight: float = 1.0

    @property
    def queued(self) -> int:
        """Tasks that are not leased."""
        return self.tasks - self.leased


@dataclass(frozen=True, slots=True)
class Backlog:
    """All clients' queues at one moment.

    Attributes:
        clients: The queues, by name.
        fragments: Fragments with open tasks; they can be computed in parallel.
        workers: Workers with unexpired leases.
    """

    clients: tuple[ClientBacklog, ...] = ()
    fragments: int = 0
    workers: int = 0
