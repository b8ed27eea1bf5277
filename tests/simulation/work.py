"""Tasks and leases in a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warehouse.scheduling.fair_shares import Charge

#: A table's partition.
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SimTask:
    """A component over a fragment. ``priorities``: who waits for it, with the highest priority of its models.

    ``secs`` of one core are what the queue expects, ``true_secs`` what it takes. Its first ``raises`` attempts raise;
    ``kills``: whoever computes it dies. ``raw_bytes`` by column, of the whole fragment.
    """

    task_id: int
    place: Place
    fragment: int
    priorities: Mapping[str, int]
    secs: float = 1.0
    true_secs: float = 1.0
    raw_bytes: Mapping[str, float] = field(default_factory=dict)
    memo_bytes: float = 0.0
    raises: int = 0
    kills: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """A leased task and what its worker must show to commit it: :class:`warehouse.queue.tasks.LeasedTask`, in short.

    ``charge``: what it was thought to take when it was leased, and who paid.
    """

    task: SimTask
    fence: int
    lease: str
    client: str
    attempt: int
    losses: int
    charge: Charge
