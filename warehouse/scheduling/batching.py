"""Batches: how many tasks a worker leases at once, by the bytes that they read and write."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import TypeVar

from transforms.errors import InputError

_Place = TypeVar("_Place")
_Task = TypeVar("_Task")


@dataclass(frozen=True, slots=True)
class BatchBudget:
    """Up to ``tasks`` tasks that read and write ``bytes`` bytes together."""

    bytes: float = 4e9
    tasks: int = 20_000

    def __post_init__(self) -> None:
        if self.tasks < 1 or not self.bytes > 0:
            raise InputError("a batch budget must allow at least one task and more than 0 bytes", value=(self.tasks, self.bytes),
                             allowed="tasks >= 1, bytes > 0")  # fmt: skip


#: The default budget of a worker.
DEFAULT_BUDGET = BatchBudget()


@dataclass(frozen=True, slots=True)
class BatchCandidate:
    """A leasable task.

    Attributes:
        place: The fragment that it reads.
        raw_bytes: The bytes of the raw columns that it reads there, by column.
        memo_bytes: The bytes of the memo that it writes.
        most_tasks: The largest batch that it may be in (:func:`batch_limit_after_losses`).
    """

    place: int
    raw_bytes: Mapping[str, float]
    memo_bytes: float
    most_tasks: float = math.inf


@dataclass(frozen=True, slots=True)
class Batch:
    """The size of a batch.

    Attributes:
        tasks: Number of tasks.
        bytes: Bytes that they read and write.
        full: A candidate did not fit.
        most_tasks: The largest size that its tasks allow.
    """

    tasks: int = 0
    bytes: float = 0.0
    full: bool = False
    most_tasks: float = math.inf


def batch_limit_after_losses(losses: int, tasks: int, max_losses: int) -> int:
    """The largest batch for a task after ``losses`` lost workers; ``tasks`` is the limit without losses.

    A task that kills its workers adds a loss to the other tasks of its batch. Each loss makes the batch smaller; from half of
    ``max_losses`` on, the task is alone, so that the other tasks are done long before they reach the limit.
    """
    alone_at = max(1, max_losses // 2)
    if losses >= alone_at:
        return 1
    return max(1, int(math.pow(tasks, 1 - losses / alone_at) * (1 + 1e-9)))


def fill_batch_from(
    places: Iterable[_Place],
    leasable: Callable[[_Place, int], Sequence[_Task]],
    candidates: Callable[[Sequence[_Task]], Sequence[BatchCandidate]],
    budget: BatchBudget,
) -> list[_Task]:
    """Fill a batch with tasks of one place after another.

    Args:
        places: The places, in order.
        leasable: Returns up to a number of tasks of a place, in lease order.
        candidates: Returns the candidates of tasks.
        budget: The limits of the batch.
    """
    batch, taken = Batch(), list[_Task]()
    for place in places:
        found = leasable(place, budget.tasks - batch.tasks)
        filled = fill_batch(candidates(found), budget, batch)
        taken += found[: filled.tasks - batch.tasks]
        batch = filled
        if batch.full or batch.tasks >= min(budget.tasks, batch.most_tasks):
            break
    return taken


def fill_batch(candidates: Sequence[BatchCandidate], budget: BatchBudget, started: Batch = Batch()) -> Batch:
    """The batch ``started`` with as many of the candidates, from the front, as fit.

    Candidates of one place are adjacent; a raw column is read once for all of them. A place is added as a whole if
    it fits. The first task of a batch is always added, with as much of its place as the budget allows.
    """
    allowed = _allowed(candidates, started)
    filled = _fill(candidates[:allowed], budget, started)
    most_tasks = min((one.most_tasks for one in candidates[: filled.tasks - started.tasks]), default=math.inf)
    full = filled.full or allowed < len(candidates)
    return replace(filled, full=full, most_tasks=min(started.most_tasks, most_tasks))


def _allowed(candidates: Sequence[BatchCandidate], started: Batch) -> int:
    """How many candidates, from the front, may be in one batch with the started one and with each other."""
    most_tasks = started.most_tasks
    for position, one in enumerate(candidates):
        most_tasks = min(most_tasks, one.most_tasks)
        if started.tasks + position + 1 > most_tasks:
            return position
    return len(candidates)


def _fill(candidates: Sequence[BatchCandidate], budget: BatchBudget, started: Batch) -> Batch:
    taken, used = started.tasks, started.bytes
    for _, group in groupby(candidates, key=lambda one: one.place):
        members = list(group)
        sizes = _running_sizes(members)
        whole = used + sizes[-1] <= budget.bytes and taken + len(members) <= budget.tasks
        if not whole:
            if taken:
                return Batch(taken, used, full=True)
            fitting = min(max(sum(1 for _ in takewhile(lambda size: size <= budget.bytes, sizes)), 1), budget.tasks)
            if fitting < len(members):
                return Batch(fitting, sizes[fitting - 1], full=True)
        taken, used = taken + len(members), used + sizes[-1]
    return Batch(taken, used)


def _running_sizes(members: Sequence[BatchCandidate]) -> list[float]:
    """Bytes read and written by the first one, two, … members of a place, cumulated."""
    read, size, sizes = set[str](), 0.0, []
    known = set[int]()  # many members have the same mapping of columns
    for member in members:
        raw_bytes = member.raw_bytes
        if id(raw_bytes) not in known:
            known.add(id(raw_bytes))
            size += sum(one for name, one in raw_bytes.items() if name not in read)
            read.update(raw_bytes)
        size += member.memo_bytes
        sizes.append(size)
    return sizes
