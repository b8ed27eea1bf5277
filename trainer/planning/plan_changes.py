"""What differs between two plans. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainer.planning.plan import PartitionPlan, TablePlan

_SAMPLED_ROWS = 4096
_HASH = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table that another plan places elsewhere.

    Attributes:
        name: the table.
        before, after: its partition in words; empty if a plan does not have the table.
        moved_share: the share of its values that are on another core, by their rows and columns; 1 for a new or absent table.
    """

    name: str
    before: str
    after: str
    moved_share: float


def changes_between(before: PartitionPlan, after: PartitionPlan) -> tuple[TableChange, ...]:
    """The tables that differ, in the order of ``before``, then new ones."""
    old, new = ({table.name: table for table in plan.tables} for plan in (before, after))
    return tuple(_changes(old, new))


def _changes(old: dict[str, TablePlan], new: dict[str, TablePlan]) -> Iterator[TableChange]:
    for name in dict.fromkeys((*old, *new)):
        first, second = old.get(name), new.get(name)
        if first == second:
            continue
        moved = 1.0
        if first is not None and second is not None and (first.rows, first.columns) == (second.rows, second.columns):
            moved = moved_share(first, second)
        yield TableChange(name, partition_text(first), partition_text(second), moved)


def partition_text(table: TablePlan | None) -> str:
    """A partition in words, such as ``row: 4 cores, cyclic``."""
    if table is None:
        return ""
    cores = len({core for one in table.slices for core in one.cores})
    parts = [f"{cores} core{'s' * (cores > 1)}"]
    if len(table.slices) > 1:
        parts.append(f"{len(table.slices)} slices of columns")
    if "row" in table.partition:
        parts.append("blocks of rows" if any(one.row_ends for one in table.slices) else "cyclic")
    return f"{table.partition}: {', '.join(parts)}"


def moved_share(before: TablePlan, after: TablePlan) -> float:
    """The share of a table's values that no core of theirs keeps; exact for up to a few thousand rows, else by some of its rows."""
    rows: Sequence[int] = range(before.rows)
    if (
        before.rows > _SAMPLED_ROWS
    ):  # spread by a multiplicative hash: equal steps meet some places of a cyclic partition only
        rows = [(k * _HASH >> 17) % before.rows for k in range(1, _SAMPLED_ROWS)]
    cuts = sorted({one.first_column for table in (before, after) for one in table.slices} | {before.columns})
    moved = 0
    for first, end in pairwise(cuts):
        moved += (end - first) * sum(not _cores(before, first, row) & _cores(after, first, row) for row in rows)
    return moved / (len(rows) * before.columns)


def _cores(table: TablePlan, column: int, row: int) -> set[int]:
    for one in table.slices:
        if one.first_column <= column < one.first_column + one.columns:
            if table.is_replicated:
                return set(one.cores)
            if one.row_ends:
                return {next(core for core, end in zip(one.cores, one.row_ends, strict=True) if row < end)}
            return {one.cores[row % len(one.cores)]}
    return set()
