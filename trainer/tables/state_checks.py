"""What every engine checks of saved tables before it changes its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trainer.errors import TornCheckpoint
from trainer.tables.engine import TableState
from trainer.tables.optimizers import slot_width
from trainer.tables.spec import TableSpec
from transforms.arrays import Array


def check_states(tables: Sequence[TableSpec], states: Mapping[str, TableState]) -> None:
    """Raise :class:`TornCheckpoint` unless ``states`` are those of ``tables``."""
    names = [table.name for table in tables]
    if set(states) != set(names):
        raise TornCheckpoint("saved embedding tables must be those of the model", value=sorted(states),
                             allowed=", ".join(names))  # fmt: skip
    for table in tables:
        check_state(table, states[table.name])


def check_state(table: TableSpec, state: TableState) -> None:
    """Raise :class:`TornCheckpoint` unless ``state`` fits ``table``."""
    count = state.rows.size
    expected = ((count,), (count, table.dim), (count, slot_width(table.optimizer, table.dim)))
    shapes = (state.rows.shape, state.weights.shape, state.slots.shape)
    types = [str(array.dtype) for array in (state.rows, state.weights, state.slots)]
    if shapes != expected or types != ["int64", "float32", "float32"] or not _are_rows_of(table, state.rows):
        raise TornCheckpoint("an embedding table's state must fit its table", where=f"table {table.name}",
                             value=(*shapes, *types), allowed=f"{expected}, ascending rows of the table")  # fmt: skip


def _are_rows_of(table: TableSpec, rows: Array) -> bool:
    if not len(rows):
        return True
    return bool(rows[0] >= 0 and rows[-1] < table.vocabulary_size and (rows[1:] > rows[:-1]).all())


def empty_state(table: TableSpec) -> TableState:
    """The state of a table whose rows all have their initial values."""
    slots = slot_width(table.optimizer, table.dim)
    return TableState(np.zeros(0, np.int64), np.zeros((0, table.dim), np.float32), np.zeros((0, slots), np.float32))
