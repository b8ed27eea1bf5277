"""How often the rows of a table are looked up, and whether so many are rarely looked up that pruning pays. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from transforms.arrays import Array

#: A row of so many lookups or fewer has learned little by the end of a log: its updates move it less than its first values are apart.
FEW_LOOKUPS: Final = 10
#: The share of all lookups that the rows of a tail have together, at most.
TAIL_LOOKUPS: Final = 0.1
#: The share of the weights that occur which a tail must have for pruning to pay.
TAIL_WEIGHTS: Final = 0.4


@dataclass(frozen=True, slots=True)
class LookupTail:
    """The lookups of one table's rows in a log.

    Attributes:
        name: of the table.
        rows: of its vocabulary; None: it is hashed, so its rows have no limit, and it is never pruned.
        columns: of a row.
        seen_rows: rows that events look up.
        lookups: of all rows.
        median_lookups: half of the seen rows have at most so many.
        rows_of_90, rows_of_99: the fewest rows that have 90 % and 99 % of the lookups.
        once_rows: rows that are looked up once.
        few_rows: rows that are looked up at most :data:`FEW_LOOKUPS` times.
    """

    name: str
    rows: int | None
    columns: int
    seen_rows: int
    lookups: int
    median_lookups: int
    rows_of_90: int
    rows_of_99: int
    once_rows: int
    few_rows: int


def lookup_tail(name: str, rows: int | None, columns: int, counts: Array) -> LookupTail:
    """The lookups of a table; ``counts``: those of each row that has any, int64, in any order."""
    ordered = np.sort(counts)[::-1]
    sums = np.cumsum(ordered)
    total = int(sums[-1]) if len(sums) else 0
    return LookupTail(
        name,
        rows,
        columns,
        seen_rows=len(ordered),
        lookups=total,
        median_lookups=int(ordered[len(ordered) // 2]) if len(ordered) else 0,
        rows_of_90=_rows_of(sums, total, 90),
        rows_of_99=_rows_of(sums, total, 99),
        once_rows=int(np.count_nonzero(ordered == 1)),
        few_rows=int(np.count_nonzero(ordered <= FEW_LOOKUPS)),
    )


def _rows_of(sums: Array, total: int, percent: int) -> int:
    """The fewest rows with so many percent of the lookups, in whole numbers: no sum of shares is rounded."""
    return int(np.searchsorted(sums, -(-total * percent // 100))) + 1 if total else 0


@dataclass(frozen=True, slots=True)
class TableCounts:
    """A table that can be pruned: its vocabulary, its columns, and the lookups of each row that has any, int64."""

    rows: int
    columns: int
    counts: Array


@dataclass(frozen=True, slots=True)
class PruningOutlook:
    """What pruning would find in tables. Their tail is of the rows with the fewest lookups: at most :data:`FEW_LOOKUPS` each, and :data:`TAIL_LOOKUPS` of all.

    Attributes:
        tail_weights: the share of the weights that occur which the tail has.
        tail_lookups: the share of the lookups that it has.
        budget: the share of the weights of all vocabularies that the other rows have, as ``pruning.budget``.
        median_lookups: half of the rows that occur have at most so many.
    """

    tail_weights: float
    tail_lookups: float
    budget: float
    median_lookups: int

    @property
    def pays(self) -> bool:
        """Whether the tail is so long that a budget without it saves much and loses little."""
        return self.tail_weights >= TAIL_WEIGHTS


def pruning_outlook(tables: Sequence[TableCounts]) -> PruningOutlook | None:
    """The outlook of tables together, whose rows compete for places; None if no row occurs."""
    counts = np.concatenate([np.zeros(0, np.int64), *(one.counts for one in tables)])
    if not len(counts):
        return None
    columns = np.repeat([one.columns for one in tables], [len(one.counts) for one in tables])
    order = np.argsort(counts, kind="stable")
    counts, columns = counts[order], columns[order]
    sums = np.cumsum(counts)
    is_tail = (counts <= FEW_LOOKUPS) & (sums <= TAIL_LOOKUPS * sums[-1])
    tail, occurs = int(columns[is_tail].sum()), int(columns.sum())
    whole = sum(one.rows * one.columns for one in tables)
    return PruningOutlook(
        tail / occurs,
        float(counts[is_tail].sum() / sums[-1]),
        (occurs - tail) / whole,
        int(counts[len(counts) // 2]),
    )
