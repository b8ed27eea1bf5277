"""What every client waits for at one moment: tasks, seconds of one core, bytes, and the age of the oldest. Pure values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientBacklog:
    """One client's unfinished work. ``tasks`` are queued or leased, ``leased`` of them are with a worker.

    ``secs``: of one core, as estimated; ``memo_bytes`` that they will write. Both are this client's part: a task that
    several clients wait for is shared alike. ``oldest_secs``: how long the oldest has waited. ``deadline_secs``: how long
    one may wait, ``weight``: the client's claim on the workers. ``failed`` tasks are quarantined, and no work.
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
        """Tasks that no worker has."""
        return self.tasks - self.leased


@dataclass(frozen=True, slots=True)
class Backlog:
    """All clients' queues at one moment, by name. ``fragments``: how many could be computed side by side; ``workers`` hold
    leases that have not run out.
    """

    clients: tuple[ClientBacklog, ...] = ()
    fragments: int = 0
    workers: int = 0
