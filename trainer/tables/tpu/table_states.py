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
from trainer.tables.tpu.placement import Placement, WholeTable
from transforms.arrays import Array

#: Arrays of one stack by name: ``parameters``, and each slot.
StackArrays = dict[str, Array]
PARAMETERS = "parameters"


def read_state(table: TableSpec, place: Placement | WholeTable, arrays: StackArrays, seed: int) -> TableState:
    """The state of a table in the arrays of its stack."""
    parts = [_read_chunk(table, place, arrays, seed, rows) for rows in place.chunks()]
    rows, weights, slots = (np.concatenate(column) for column in zip(*parts, strict=True))
    return TableState(rows, weights, slots)


def _read_chunk(
    table: TableSpec, place: Placement | WholeTable, arrays: StackArrays, seed: int, rows: Array
) -> tuple[Array, Array, Array]:
    weights = place.read(arrays[PARAMETERS], rows)
    changed = (weights.view(np.uint32) != initial_rows(table, seed, rows).view(np.uint32)).any(axis=1)
    slots = np.zeros((len(rows), slot_width(table.optimizer, table.dim)), np.float32)
    for k, slot in enumerate(table.optimizer.slots):
        values = place.read(arrays[slot.name], rows)
        changed |= (values != np.float32(slot.initial)).any(axis=1)
        slots[:, k * table.dim : (k + 1) * table.dim] = values
    return rows[changed], weights[changed], slots[changed]


def initial_arrays(tables: Sequence[TableSpec], places: Mapping[str, Placement | WholeTable], seed: int) -> StackArrays:
    """The arrays of a stack of ``tables`` before training."""
    shape = places[tables[0].name].stack_shape
    arrays = {slot.name: np.full(shape, slot.initial, np.float32) for slot in tables[0].optimizer.slots}
    arrays[PARAMETERS] = np.zeros(shape, np.float32)
    for table in tables:
        place = places[table.name]
        for rows in place.chunks():
            place.write(arrays[PARAMETERS], rows, initial_rows(table, seed, rows))
    return arrays


def write_state(table: TableSpec, place: Placement | WholeTable, arrays: StackArrays, state: TableState) -> None:
    """Set the rows of a (checked) state in the arrays of its stack."""
    place.write(arrays[PARAMETERS], state.rows, state.weights)
    for k, slot in enumerate(table.optimizer.slots):
        place.write(arrays[slot.name], state.rows, state.slots[:, k * table.dim : (k + 1) * table.dim])
