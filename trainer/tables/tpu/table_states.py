"""Table states, the form of every engine's checkpoints, from and into the arrays of TPUs. Pure.

A state holds the rows that differ from their initial values, with the slots of their optimizer side by side. It says nothing of shards and
stacks, so it moves between engines, slices and stackings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trainer.tables.engine import TableState
from trainer.tables.optimizers import slot_width
from trainer.tables.spec import TableSpec
from trainer.tables.tpu.initial_rows import initial_rows
from trainer.tables.tpu.placement import BlockedTable, Placement
from transforms.arrays import Array

#: Arrays of one part of a stack by name: ``parameters``, and each slot.
StackArrays = dict[str, Array]
PARAMETERS = "parameters"


def read_part(
    table: TableSpec, place: Placement | BlockedTable, part: int, arrays: StackArrays, seed: int
) -> TableState:
    """The state of the rows of a table that are in a part of its stack, ascending."""
    found = [_read_chunk(table, place, part, arrays, seed, rows) for rows in place.chunks(part)]
    nothing = np.zeros(0, np.int64), np.zeros((0, table.dim), np.float32), _slots_of(table, 0)
    rows, weights, slots = (np.concatenate(column) for column in zip(nothing, *found, strict=True))
    return TableState(rows, weights, slots)


def joined_parts(parts: Sequence[TableState]) -> TableState:
    """The state of a table from those of its parts."""
    rows = np.concatenate([one.rows for one in parts])
    order = np.argsort(rows, kind="stable")
    weights, slots = (np.concatenate([getattr(one, name) for one in parts]) for name in ("weights", "slots"))
    return TableState(rows[order], weights[order], slots[order])


def _read_chunk(
    table: TableSpec, place: Placement | BlockedTable, part: int, arrays: StackArrays, seed: int, rows: Array
) -> tuple[Array, Array, Array]:
    weights = place.read(part, arrays[PARAMETERS], rows)
    changed = (weights.view(np.uint32) != initial_rows(table, seed, rows).view(np.uint32)).any(axis=1)
    slots = _slots_of(table, len(rows))
    for k, slot in enumerate(table.optimizer.slots):
        values = place.read(part, arrays[slot.name], rows)
        changed |= (values != np.float32(slot.initial)).any(axis=1)
        slots[:, k * table.dim : (k + 1) * table.dim] = values
    return rows[changed], weights[changed], slots[changed]


def _slots_of(table: TableSpec, rows: int) -> Array:
    return np.zeros((rows, slot_width(table.optimizer, table.dim)), np.float32)


def initial_arrays(
    tables: Sequence[TableSpec], places: Mapping[str, Placement | BlockedTable], part: int, seed: int
) -> StackArrays:
    """The arrays of a part of a stack of ``tables`` before training."""
    shape = places[tables[0].name].part_shape(part)
    arrays = {slot.name: np.full(shape, slot.initial, np.float32) for slot in tables[0].optimizer.slots}
    arrays[PARAMETERS] = np.zeros(shape, np.float32)
    for table in tables:
        place = places[table.name]
        for rows in place.chunks(part):
            place.write(part, arrays[PARAMETERS], rows, initial_rows(table, seed, rows))
    return arrays


def write_part(
    table: TableSpec, place: Placement | BlockedTable, part: int, arrays: StackArrays, state: TableState
) -> None:
    """Set those rows of a (checked) state that are in a part, in the arrays of that part."""
    own = place.parts_of(state.rows) == part
    rows, slots = state.rows[own], state.slots[own]
    place.write(part, arrays[PARAMETERS], rows, state.weights[own])
    for k, slot in enumerate(table.optimizer.slots):
        place.write(part, arrays[slot.name], rows, slots[:, k * table.dim : (k + 1) * table.dim])
