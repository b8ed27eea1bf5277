"""What pruning has done in this process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PruningCounts:
    """The figures of a pruned engine.

    Attributes:
        hits, misses: looked-up ids of rows with a place, or with the initial values of a row that takes one; and of others, which were read as zeros.
        moved_rows: rows that got the place of another one.
        round_secs: the seconds of all rounds.
        check_secs: those of all samples.
    """

    hits: int = 0
    misses: int = 0
    moved_rows: int = 0
    round_secs: float = 0.0
    check_secs: float = 0.0
