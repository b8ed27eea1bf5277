"""The importance of the rows of pruned tables in checkpoints, as of the moment of the rows.

Arrays under ``history/`` beside those of the tables. With them, a run that goes on prunes as one that was never stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainer.checkpoints.parted_arrays import ArrayKind, PartedArrays
from trainer.embedding.engine import TableState
from trainer.embedding.pruned.history import PrunedHistory
from trainer.embedding.pruned.tables import PrunedTables
from trainer.errors import TornCheckpoint
from trainer.training.saved_tables import history_name, parted_tables

Array = np.ndarray[Any, np.dtype[Any]]

#: Rows with importance, their importance, and numbers: gain, step and rounds of the engine.
_COLUMNS = ("importance_rows", "importance", "pruning")
#: With the reset rule ``restored``, the values that rows had when they left.
_LEFT = ("left_rows", "left_weights", "left_slots")


def _arrays_of(history: PrunedHistory) -> dict[str, Array]:
    """The arrays of a history by their columns."""
    numbers = np.array([history.gain, history.step, history.rounds], np.float64)
    found = dict(zip(_COLUMNS, (history.rows, history.importance, numbers), strict=True))
    if (left := history.left) is not None:
        found.update(zip(_LEFT, (left.rows, left.weights, left.slots), strict=True))
    return found


def importance_arrays(
    place_of: Callable[[str], tuple[str, str]], histories: Mapping[str, PrunedHistory]
) -> dict[str, Array]:
    """The arrays of the tables of an engine, as a checkpoint stores them.

    ``place_of``: from a table's name in the engine to the part of the model that has it, and its name there.
    """
    found = {}
    for table, history in histories.items():
        kind, name = place_of(table)
        for column, array in _arrays_of(history).items():
            found[history_name(kind, column, name)] = array
    return found


def saved_importance(
    arrays: Mapping[str, Array], place_of: Callable[[str], tuple[str, str]], tables: Sequence[str]
) -> dict[str, PrunedHistory]:
    """The inverse of :func:`importance_arrays`. Raises :class:`TornCheckpoint` for tables without importance.

    The parts of a model may have had engines of their own, with rounds of their own: their highest number counts.
    """
    found = {name: _history(arrays, *place_of(name)) for name in tables}
    rounds = max((one.rounds for one in found.values()), default=0)
    return {table: replace(one, rounds=rounds) for table, one in found.items()}


def _history(arrays: Mapping[str, Array], kind: str, table: str) -> PrunedHistory:
    names = [history_name(kind, column, table) for column in _COLUMNS]
    if any(name not in arrays for name in names):
        raise TornCheckpoint("a checkpoint must have the importance of the rows of each pruned table", where=f"{kind} table {table}",
                             allowed=", ".join(names))  # fmt: skip
    rows, importance, numbers = (arrays[name] for name in names)
    if numbers.shape != (3,) or numbers.dtype != np.float64 or not np.isfinite(numbers).all():
        raise TornCheckpoint(
            "the numbers of a pruned table must be three finite ones",
            where=f"{kind} table {table}",
            value=numbers.shape,
        )
    gain, step, rounds = numbers.tolist()
    left = [arrays[name] for column in _LEFT if (name := history_name(kind, column, table)) in arrays]
    if len(left) not in (0, len(_LEFT)):
        raise TornCheckpoint(
            "the values of rows that left must have rows, weights and slots",
            where=f"{kind} table {table}",
            value=len(left),
        )
    state = TableState(*left) if left else None
    return PrunedHistory(rows, importance, gain, int(step), int(rounds), state)


def parted_with_importance(
    place_of: Callable[[str], tuple[str, str]], engine: PrunedTables, most_bytes: int
) -> list[PartedArrays]:
    """As :func:`~trainer.training.saved_tables.parted_tables`, with the importance of the same moment."""
    found = parted_tables(place_of, engine, most_bytes)
    for name, history in engine.histories().items():
        kind, table = place_of(name)
        for column, array in _arrays_of(history).items():
            of = ArrayKind(history_name(kind, column, table), str(array.dtype), array.shape)
            found.append(PartedArrays((of,), iter([(array,)])))
    return found
