"""What is saved of pruned tables, in parts that each have rows: the rows of all tables, then what these have beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.options.pruning import PruningOptions
from trainer.tables.optimizers import slot_width
from trainer.tables.spec import TableSpec
from trainer.tables.stores.pruned.history import IMPORTANCE, LEFT


@dataclass(frozen=True, slots=True)
class SavedPart:
    """Rows that are saved and loaded together.

    Attributes:
        table: the position of their table.
        section: of the table's state; empty: its rows.
        rows: the rows that it may have.
        dim: the weights of each.
        slot_dim: the slot values of each.
    """

    table: int
    section: str
    rows: int
    dim: int
    slot_dim: int


def saved_parts(
    tables: Sequence[TableSpec], options: PruningOptions | None, pruned: Sequence[int]
) -> tuple[SavedPart, ...]:
    """The parts in their order: one for each table, then the sections by rows of each of the ``pruned`` ones; none of these without ``options``."""
    found = [_part(t, table, "") for t, table in enumerate(tables)]
    if options is not None:
        found += [SavedPart(t, IMPORTANCE, tables[t].vocabulary_size, 1, 0) for t in pruned]
        if options.reset == "restored":
            found += [_part(t, tables[t], LEFT) for t in pruned]
    return tuple(found)


def _part(t: int, table: TableSpec, section: str) -> SavedPart:
    return SavedPart(t, section, table.vocabulary_size, table.dim, slot_width(table.optimizer, table.dim))
