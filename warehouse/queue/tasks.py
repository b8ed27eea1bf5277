"""Leased tasks, and the claims by which their leases are checked."""

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

#: A claim on a task: its id, fencing token and the name of the lease.
Claim = tuple[int, int, str]


@dataclass(frozen=True)
class LeasedTask:
    """A task that a worker holds until its lease expires.

    Files that are written for it have the lease's name: garbage collection keeps them while a task has that lease.

    Attributes:
        task_id: The task's number.
        memo_key: The memo that it computes.
        fence: The fencing token of the lease.
        lease: The name of the lease.
        fingerprint: The component's fingerprint.
        component: The component's document.
        table: The table of the fragment.
        partition: The partition of the fragment.
        fragment: The fragment that it reads.
        client: The client that was served.
        priority: The highest priority of the models that wait for it.
        attempt: The number of the attempt, from 1.
        losses: Earlier attempts whose worker was lost.
        work_secs: Estimated core seconds, which were charged.
        payers: The charged clients, with their shares at that time.
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
        """The claim that a commit needs."""
        return self.task_id, self.fence, self.lease

    @property
    def charge(self) -> Charge:
        """The charge of the lease."""
        return Charge(self.work_secs, self.payers)


@dataclass(frozen=True, slots=True)
class MemoWritten:
    """A memo whose bytes are written and synced, in a column with the component's fingerprint as its name.

    Attributes:
        file: The whole file.
        rows: Rows of the memo.
        size_bytes: Bytes of its column.
        secs: Core seconds that it took.
    """

    file: NewFile
    rows: int
    size_bytes: int
    secs: float


def held_claims(connection: Connection, tasks: Sequence[LeasedTask]) -> set[Claim]:
    """The claims that are still valid: the compare of a compare-and-swap under the write lock."""
    of = schema.tasks.c
    shown = {task.claim for task in tasks}
    owned: set[Claim] = set()
    for chunk in chunks(sorted({task.task_id for task in tasks})):
        query = select(of.id, of.fence, of.lease).where(one_of(connection, of.id, chunk), allows(TaskEvent.COMMIT))
        owned.update(claim for row in connection.execute(query) if (claim := tuple(row)) in shown)
    return owned
