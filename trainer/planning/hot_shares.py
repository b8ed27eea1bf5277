"""How many rows of each table to keep in the memory that trains, within a budget of bytes over all tables. Pure.

Every row has a benefit, its lookups in an event, and a price, its bytes. Rows are taken in the order of benefit by price: the most
frequent rows of a table come first. Where shares are stated this is the best choice for the bytes that it takes; by a sample it is the
best choice for lookups that the sample has not seen, and the share that it serves is known within bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.options.hot_rows import HotOptions
from trainer.planning.served_lookups import ServedLookups, served_lookups
from trainer.planning.tables import TableFacts


@dataclass(frozen=True, slots=True)
class HotShare:
    """The hot rows of a table.

    Attributes:
        name, rows, row_bytes: the table, with the slots of its optimizer.
        hot_rows: the rows in the memory that trains.
        ids_per_event: the lookups of an event.
        served_share: the least share of them that the best choice of so many hot rows serves.
        most_served_share: the most; both are equal where shares are stated or assumed.
    """

    name: str
    rows: int
    row_bytes: int
    hot_rows: int
    ids_per_event: float
    served_share: float
    most_served_share: float

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
    served = [served_lookups(table) for table in tables]
    taken = [0.0] * len(tables)
    left = float(budget_bytes)
    for one in sorted(_classes(tables, served), key=lambda one: (-one.worth, one.table)):
        rows = min(one.rows, left / tables[one.table].row_bytes)
        taken[one.table] += rows
        left -= rows * tables[one.table].row_bytes
    return tuple(_share(*one) for one in zip(tables, served, taken, strict=True))


def shares_of(option: HotOptions, tables: Sequence[TableFacts]) -> tuple[HotShare, ...]:
    """The hot rows of each table by an option that is a share of all bytes."""
    return hot_shares(tables, round(option.share * sum(one.table_bytes for one in tables)))


def hot_rows_of(option: HotOptions, tables: Sequence[TableFacts]) -> dict[str, int]:
    """The hot rows of each table by the option of a run. Raises :class:`ConfigError` for the name of no table."""
    if option.share:
        return {one.name: one.hot_rows for one in shares_of(option, tables)}
    given = option.by_table or {}
    names = [one.name for one in tables]
    if unknown := [name for name in given if name not in names]:
        raise ConfigError("hot_rows must name tables of the model", where="hot_rows", value=", ".join(unknown)[:200],
                          allowed=", ".join(names)[:200], next_step="headrace plan hot MODEL --output FILE names them")  # fmt: skip
    return {one.name: min(option.of_each or given.get(one.name, 0), one.rows) for one in tables}


def _classes(tables: Sequence[TableFacts], served: Sequence[ServedLookups]) -> list[_Class]:
    """All rows of all tables, those without lookups too, which may be looked up one day."""
    return [
        _Class(t, rows, share * table.ids_per_event / table.row_bytes)
        for t, (table, of_table) in enumerate(zip(tables, served, strict=True))
        for rows, share in of_table.classes()
    ]


def _share(table: TableFacts, served: ServedLookups, rows: float) -> HotShare:
    hot = min(math.floor(rows + 1e-6), table.rows)
    least, most = served.bounds(hot) if table.ids_per_event else (0.0, 0.0)
    return HotShare(table.name, table.rows, table.row_bytes, hot, table.ids_per_event, least, most)


def served_shares(shares: Sequence[HotShare]) -> tuple[float, float]:
    """The least and the most share of all lookups that hot rows serve; 0 without lookups."""
    ids = math.fsum(one.ids_per_event for one in shares)
    least = math.fsum(one.ids_per_event * one.served_share for one in shares)
    most = math.fsum(one.ids_per_event * one.most_served_share for one in shares)
    return (least / ids, most / ids) if ids else (0.0, 0.0)
