"""How much a worker takes at once: by the bytes it will read and write, as they were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class BatchBudget:
    """Up to ``tasks`` tasks that read and write ``bytes`` bytes together."""

    bytes: float = 4e9
    tasks: int = 20_000

    def __post_init__(self) -> None:
        if self.tasks < 1 or not self.bytes > 0:
            raise InputError("a batch holds at least one task and some bytes", value=(self.tasks, self.bytes),
                             allowed="tasks >= 1, bytes > 0")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that could be leased: the place (a fragment) it reads, the bytes of the raw columns it reads there, and the
    bytes of the memo it writes.
    """

    place: int
    raw_bytes: Mapping[str, float]
    memo_bytes: float


@dataclass(frozen=True, slots=True)
class Batch:
    """What was taken so far: ``tasks`` that read and write ``bytes``; ``full``: something was left that did not fit."""

    tasks: int = 0
    bytes: float = 0.0
    full: bool = False


def fill_batch(candidates: Sequence[Candidate], budget: BatchBudget, begun: Batch = Batch()) -> Batch:
    """The batch ``begun`` with as many of the candidates, from the front, as fit beside it.

    Candidates of one place stand together; a raw column is read once for all of them. A place is taken as a whole where
    it fits; the first task of a batch is taken whatever it weighs, and as much of its place as the budget holds.
    """
    taken, used = begun.tasks, begun.bytes
    for _, group in groupby(candidates, key=lambda one: one.place):
        members = list(group)
        sizes = _running_sizes(members)
        whole = used + sizes[-1] <= budget.bytes and taken + len(members) <= budget.tasks
        if not whole:
            if taken:
                return Batch(taken, used, full=True)
            fitting = min(max(sum(1 for size in sizes if size <= budget.bytes), 1), budget.tasks)
            return Batch(fitting, sizes[fitting - 1], full=True)
        taken, used = taken + len(members), used + sizes[-1]
    return Batch(taken, used)


def _running_sizes(members: Sequence[Candidate]) -> list[float]:
    """Bytes read and written by the first one, two, … members of a place."""
    read: dict[str, float] = {}
    written, sizes = 0.0, []
    for member in members:
        read.update(member.raw_bytes)
        written += member.memo_bytes
        sizes.append(sum(read.values()) + written)
    return sizes
