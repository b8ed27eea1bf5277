"""What verification finds wrong, and what would put it right. Values only."""

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
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: where, what, and what to do.

    ``component``: the fingerprint of the memo's, where a memo is wrong. ``repaired``: it was put right.
    """

    kind: FindingKind
    where: str
    what: str
    next_step: str
    component: str = ""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class BadMemo:
    """A memo in ``path`` that must not be loaded: it is marked as damaged, and computed again where it is needed."""

    key: str
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class BadFragment:
    """A memo whose fragment is not the one it was computed from: it gets the right one, or is evicted."""

    key: str
    path: str


@dataclass(frozen=True, slots=True)
class BadFile:
    """A memo file of which the catalog says something that its memos do not: coverage and counts are made again."""

    file: int


@dataclass(frozen=True, slots=True)
class BadLease:
    """A task whose lease ran out and that no worker takes over: its lease ends, and its attempt counts as lost."""

    task: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding, and its repair; None where a person has to act."""

    finding: Finding
    repair: BadMemo | BadFragment | BadFile | BadLease | None = None


REPAIR = "headrace verify --repair"
