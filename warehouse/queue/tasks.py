"""Leased tasks: what a worker owns, the claim that it shows, and which claims still stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.task_rows import allows
from warehouse.files.column_files import NewFile
from warehouse.scheduling.fair_shares import Charge
from warehouse.scheduling.task_states import TaskEvent
from warehouse.tables.table import Fragment

#: What a holder shows: the task's id, its fence and the name of its lease.
Claim = tuple[int, int, str]


@dataclass(frozen=True)
class LeasedTask:
    """A task that a worker owns until its lease runs out. ``fence`` and ``lease`` are what it must show to commit.

    Files that are written for it carry the lease's name: while a task is leased, they are not swept away. ``client`` is
    the one whose turn it was; ``attempt`` counts from 1, and ``losses`` of the earlier ones ended with a lost worker.
    ``work_secs``: what it is estimated to take of one core, and was charged to ``payers``: clients, with the share that each
    had of the workers then.
    """

    task_id: int
    memo_key: str
    fence: int
    lease: str
    fingerprint: str
    component: dict[str, Any]
    table: str
    partition: str
    fragment: Fragment
    client: str
    priority: int
    attempt: int
    losses: int = 0
    work_secs: float = 0.0
    payers: Mapping[str, float] = field(default_factory=dict)

    @property
    def claim(self) -> Claim:
        """What it must show to be committed."""
        return self.task_id, self.fence, self.lease

    @property
    def charge(self) -> Charge:
        """What was charged for it."""
        return Charge(self.work_secs, self.payers)


@dataclass(frozen=True, slots=True)
class MemoWritten:
    """A memo whose bytes are in place and synced: the file, as a whole, and the column's share of it and what it cost.

    The column is named by the component's fingerprint.
    """

    file: NewFile
    rows: int
    size_bytes: int
    secs: float


def held_claims(connection: Connection, tasks: Sequence[LeasedTask]) -> set[Claim]:
    """Which claims still stand: the compare of a compare-and-swap that holds the write lock."""
    of = schema.tasks.c
    shown = {task.claim for task in tasks}
    owned: set[Claim] = set()
    for chunk in chunks(sorted({task.task_id for task in tasks})):
        query = select(of.id, of.fence, of.lease).where(one_of(connection, of.id, chunk), allows(TaskEvent.COMMIT))
        owned.update(claim for row in connection.execute(query) if (claim := tuple(row)) in shown)
    return owned
