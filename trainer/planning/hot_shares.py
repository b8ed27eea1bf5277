"""How many rows of each table to keep in the accelerator's memory, within a budget of bytes over all tables. Pure.

Every row has a benefit, its lookups in an event, and a price, its bytes. Rows are taken in the order of benefit by price. This is the
best choice for the bytes that it takes: the most frequent rows of a table come first, and no other rows serve more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.planning.tables import TableFacts


@dataclass(frozen=True, slots=True)
class HotShare:
    """The hot rows of a table.

    Attributes:
        name, rows, row_bytes: the table, with the slots of its optimizer.
        hot_rows: the rows in the accelerator's memory.
        ids_per_event: the lookups of an event.
        served_share: the share of them that hot rows have, by the statistics.
    """

    name: str
    rows: int
    row_bytes: int
    hot_rows: int
    ids_per_event: float
    served_share: float

    @property
    def hot_bytes(self) -> int:
        """The bytes of the hot rows."""
        return self.hot_rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class _Class:
    """Rows of one table of about equal frequency; ``worth``: lookups in an event by a byte of them."""

    table: int
    rows: float
    worth: float


def hot_shares(tables: Sequence[TableFacts], budget_bytes: int) -> tuple[HotShare, ...]:
    """The hot rows of each table in its order. Raises :class:`ConfigError` for a budget below 0."""
    if budget_bytes < 0:
        raise ConfigError("the memory for hot rows must be >= 0", value=budget_bytes, allowed=">= 0")
    taken = [0.0] * len(tables)
    left = float(budget_bytes)
    for one in sorted(_classes(tables), key=lambda one: (-one.worth, one.table)):
        rows = min(one.rows, left / tables[one.table].row_bytes)
        taken[one.table] += rows
        left -= rows * tables[one.table].row_bytes
    return tuple(_share(table, rows) for table, rows in zip(tables, taken, strict=True))


def _classes(tables: Sequence[TableFacts]) -> list[_Class]:
    """All rows of all tables, those without lookups too, which may be looked up one day."""
    found = []
    for t, table in enumerate(tables):
        frequencies = table.frequencies()
        by_row = table.ids_per_event / table.row_bytes
        found += [_Class(t, 1.0, share * by_row) for _, share in frequencies.head]
        found += [_Class(t, rows, share * by_row) for rows, share in frequencies.classes]
        found.append(_Class(t, max(table.rows - frequencies.distinct_rows, 0.0), 0.0))
    return found


def _share(table: TableFacts, rows: float) -> HotShare:
    hot = min(math.floor(rows + 1e-6), table.rows)
    served = min(table.frequencies().share_of_hottest(hot), 1.0) if table.ids_per_event else 0.0
    return HotShare(table.name, table.rows, table.row_bytes, hot, table.ids_per_event, served)


def served_share(shares: Sequence[HotShare]) -> float:
    """The share of all lookups that hot rows have; 0 without lookups."""
    ids = math.fsum(one.ids_per_event for one in shares)
    return math.fsum(one.ids_per_event * one.served_share for one in shares) / ids if ids else 0.0
