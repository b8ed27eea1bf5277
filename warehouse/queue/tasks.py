"""Leased memos, and the claims by which their leases are checked.

A task is leased as a whole or split; a worker gets a :class:`LeasedTask` for each of its memos, computes and commits them one
by one. The claim is one on the memo: its task must be leased with the same fencing token and name of the lease. So it stays
valid when other memos of the task are committed, fail, or are moved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.task_rows import allows, computes
from warehouse.files.column_files import NewFile
from warehouse.scheduling.fair_shares import Charge
from warehouse.scheduling.task_states import TaskEvent
from warehouse.tables.table import Fragment


@dataclass(frozen=True)
class LeasedTask:
    """A memo of a task that a worker holds until the lease expires.

    Files that are written for it have the lease's name: garbage collection keeps them while a task has that lease.

    Attributes:
        task_id: The number that the task had when it was leased; other memos may have the same.
        memo_key: The memo.
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


def held_tasks(connection: Connection, tasks: Sequence[LeasedTask]) -> list[int | None]:
    """For each of ``tasks`` whose claim is valid, the number of the task that the memo has now; None for the others.

    This is the compare of a compare-and-swap under the write lock. A memo that is done or dropped, or whose attempt was
    reported, is in no leased task with this lease any more.
    """
    of, memos = schema.tasks.c, schema.memos.c
    query = select(of.id, of.fence, of.lease, func.aggregate_strings(memos.memo_key, ","))
    query = query.join(schema.memos, computes()).where(allows(TaskEvent.COMMIT)).group_by(of.id)
    leased: dict[int, _Leased] = {}
    for chunk in chunks(sorted({task.task_id for task in tasks})):
        leased.update(map(_Leased.of, connection.execute(query.where(one_of(connection, of.id, chunk)))))
    held = [task.task_id if (row := leased.get(task.task_id)) is not None and row.has(task) else None for task in tasks]
    # A memo may be in another task now, which was split from the one that was leased.
    elsewhere: defaultdict[str, list[int]] = defaultdict(list)
    for position, number in enumerate(held):
        if number is None:
            elsewhere[tasks[position].memo_key].append(position)
    for keys in chunks(sorted(elsewhere)):
        for number, found in map(_Leased.of, connection.execute(query.where(one_of(connection, memos.memo_key, keys)))):
            for position in (position for key in found.keys for position in elsewhere[key]):
                if found.has(tasks[position]):
                    held[position] = number
    return held


class _Leased(NamedTuple):
    """The fencing token and the lease of a leased task, with the keys of its memos."""

    fence: int
    lease: str
    keys: frozenset[str]

    @classmethod
    def of(cls, row: Any) -> tuple[int, _Leased]:
        number, fence, lease, keys = row
        return number, cls(fence, lease, frozenset(keys.split(",")))

    def has(self, task: LeasedTask) -> bool:
        """Whether the claim on the memo is valid."""
        return task.memo_key in self.keys and task.fence == self.fence and task.lease == self.lease
