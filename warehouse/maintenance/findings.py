"""Findings of verification, and their repairs. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingKind = Literal[
    "missing file",
    "damaged memo",
    "coverage",
    "counts",
    "rows",
    "identity",
    "recomputed",
    "raw data",
    "artifact",
    "overlay",
    "lease",
    "task",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault.

    Attributes:
        kind: Its class.
        where: The file or the task.
        what: The fault in a sentence.
        next_step: How to repair it.
        component: The fingerprint of the memo's component, if a memo is at fault.
        repaired: Whether it was repaired.
    """

    kind: FindingKind
    where: str
    what: str
    next_step: str
    component: str = ""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class BadMemo:
    """A wrong memo in ``path``: the repair marks it as damaged and queues it if a live model reads it."""

    key: str
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class BadFragment:
    """A memo with the wrong fragment: the repair sets the right one, or evicts it."""

    key: str
    path: str


@dataclass(frozen=True, slots=True)
class BadFile:
    """A memo file with wrong coverage or counts: the repair rebuilds both."""

    file: int


@dataclass(frozen=True, slots=True)
class BadLease:
    """A task with an expired lease that no worker takes over: the repair ends the lease as a loss."""

    task: int


@dataclass(frozen=True, slots=True)
class BadTask:
    """A task that contradicts its memos or its fragment: the repair queues what does not fit, and deletes it if it is empty."""

    task: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding with its repair; None if there is no automatic one."""

    finding: Finding
    repair: BadMemo | BadFragment | BadFile | BadLease | BadTask | None = None


REPAIR = "headrace verify --repair"
