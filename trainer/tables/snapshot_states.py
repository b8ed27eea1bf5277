"""The state of a table from a snapshot, as a whole."""

from __future__ import annotations

import numpy as np

from trainer.tables.engine import RowSection, TableSections, TablesSnapshot, TableState
from trainer.tables.spec import TableSpec
from trainer.tables.state_checks import empty_state


def state_of(snapshot: TablesSnapshot, t: int, table: TableSpec) -> TableState:
    """The changed rows of the table at a position, and its sections."""
    sections, parts, none = snapshot.sections(t), list(snapshot.table(t)), empty_state(table)
    rows, weights, slots = (
        np.concatenate([getattr(one, name) for one in (none, *parts)]) for name in ("rows", "weights", "slots")
    )
    beside = {
        name: np.concatenate([np.zeros(0, np.int64), *(one.beside[k] for one in parts)])
        for k, name in enumerate(sections.beside)
    }
    others = {
        name: np.concatenate([np.zeros((0, *one.shape[1:]), one.dtype), *one.parts])
        for name, one in sections.arrays.items()
    }
    by_rows = {name: _whole(one) for name, one in sections.by_rows.items()}
    return TableState(rows, weights, slots, TableSections(by_rows, {**beside, **others}))


def _whole(section: RowSection) -> TableState:
    found = [section.none(), *section.parts()]
    rows, weights, slots = (
        np.concatenate([getattr(one, name) for one in found]) for name in ("rows", "weights", "slots")
    )
    return TableState(rows, weights, slots)
