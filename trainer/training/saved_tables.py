"""Embedding tables as a checkpoint stores them: rows, weights and slots of each, as whole arrays or part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from trainer.checkpoints.commit_manifest import TABLE_COLUMNS, array_name
from trainer.checkpoints.parted_arrays import ArrayKind, PartedArrays
from trainer.embedding.engine import ChangedRows, SavedTables, TablesSnapshot, TableState
from trainer.embedding.optimizers import slot_width
from trainer.errors import NonFiniteLoss, TornCheckpoint

Array = np.ndarray[Any, np.dtype[Any]]


def history_name(kind: str, column: str, table: str) -> str:
    """The name of what a checkpoint has of a table beside its rows."""
    return f"history/{kind}/{column}/{table}"


def own_place(kind: str, table: str) -> tuple[str, str]:
    """The place of a table in an engine of one part of the model."""
    return kind, table


def state_arrays(states: Iterable[tuple[str, str, TableState]]) -> dict[str, Array]:
    """The arrays of tables as a checkpoint stores them, from the part of the model, the name and the state of each."""
    arrays = {}
    for kind, table, state in states:
        arrays[f"{kind}/rows/{table}"] = state.rows
        arrays[f"{kind}/weights/{table}"] = state.weights
        arrays[f"{kind}/slots/{table}"] = state.slots
    return arrays


def saved_states(arrays: Mapping[str, Array], kind: str) -> dict[str, TableState]:
    """The states of one part of the model, the inverse of :func:`state_arrays`. Raises :class:`TornCheckpoint`."""
    rows, weights, slots = (under(arrays, f"{kind}/{part}/") for part in ("rows", "weights", "slots"))
    if not rows.keys() == weights.keys() == slots.keys():
        raise TornCheckpoint("saved embedding tables must have rows, weights and slots", value=sorted(rows))
    return {name: TableState(rows[name], weights[name], slots[name]) for name in rows}


def parted_tables(
    place_of: Callable[[str], tuple[str, str]], engine: SavedTables, most_bytes: int
) -> list[PartedArrays]:
    """The tables of one engine as they are now; see :meth:`ModelWeights.begin_tables`.

    ``place_of``: from a table's name in the engine to the part of the model that has it, and its name there.
    """
    snapshot = engine.begin_snapshot(most_bytes=most_bytes)
    found = []
    for t, (table, count) in enumerate(zip(engine.tables, snapshot.counts, strict=True)):
        kind, name = place_of(table.name)
        kinds = table_arrays(kind, name, count, table.dim, slot_width(table.optimizer, table.dim))
        found.append(PartedArrays(kinds, finite_parts(snapshot, t, f"{kind} table {name}")))
    return found


def table_arrays(
    kind: str, table: str, count: int, columns: int, slots: int, slice_number: int | None = None
) -> tuple[ArrayKind, ArrayKind, ArrayKind]:
    """The rows, weights and slots of a table with ``count`` saved rows, or of a slice of its columns."""
    rows, weights, slot_values = (array_name(kind, column, table, slice_number) for column in TABLE_COLUMNS)
    return (
        ArrayKind(rows, "int64", (count,)),
        ArrayKind(weights, "float32", (count, columns)),
        ArrayKind(slot_values, "float32", (count, slots)),
    )


def finite_parts(snapshot: TablesSnapshot, t: int, place: str) -> Iterator[tuple[Array, Array, Array]]:
    """The parts of a table of a snapshot. Raises :class:`NonFiniteLoss` for values that are not finite."""
    for part in snapshot.table(t):
        check_finite_values(part, place)
        yield part.rows, part.weights, part.slots


def check_finite_values(part: ChangedRows, place: str) -> None:
    """Raises :class:`NonFiniteLoss` for rows with values that are not finite."""
    if not (np.isfinite(part.weights).all() and np.isfinite(part.slots).all()):
        raise NonFiniteLoss("training diverged: the last step of an epoch left NaN or infinite weights", where=place,
                            next_step="lower the learning rates and train in a fresh run directory; the last checkpoint is intact")  # fmt: skip


def under(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
