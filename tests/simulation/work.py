"""Tasks and leases in a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warehouse.scheduling.fair_shares import Charge

#: A table's partition.
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SimTask:
    """A component over a fragment: a memo, which has a task of its own here.

    Attributes:
        memo_key: Its memo's key, or any name.
        place: Its partition.
        fragment: Its fragment.
        priorities: The clients that wait for it, with the highest priority of their models.
        secs: Estimated core seconds.
        true_secs: The core seconds that it takes.
        raw_bytes: Bytes of the whole fragment by raw column.
        memo_bytes: Bytes of its memo.
        raises: The number of first attempts that raise.
        kills: It ends the process that computes it.
    """

    memo_key: str
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
    """A leased task with its claim, as :class:`warehouse.queue.tasks.LeasedTask`."""

    task: SimTask
    fence: int
    lease: str
    client: str
    attempt: int
    losses: int
    charge: Charge
