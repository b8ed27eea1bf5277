"""The importance of the rows of pruned tables in checkpoints, as of the moment of the rows.

It has rows as its table has, under a kind of its own, so that the hosts of a job share it as they share tables. With it, a run that goes on
prunes as one that was never stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainer.checkpoints.commit_manifest import IMPORTANCE, LEFT, TABLE_COLUMNS, array_name, table_of
from trainer.checkpoints.parted_arrays import ArrayKind, PartedArrays
from trainer.embedding.engine import TableState
from trainer.embedding.pruned.history import PrunedHistory
from trainer.embedding.pruned.tables import PrunedTables
from trainer.errors import TornCheckpoint
from trainer.training.saved_tables import history_name, parted_tables, state_arrays

Array = np.ndarray[Any, np.dtype[Any]]

#: Numbers beside the rows of a table: gain, step and rounds of the engine.
_NUMBERS = "pruning"


def _arrays_of(kind: str, table: str, history: PrunedHistory) -> dict[str, Array]:
    """The arrays of a table's history."""
    rows = history.rows
    importance = TableState(rows, history.importance.reshape(-1, 1), np.zeros((len(rows), 0), np.float32))
    states = [(f"{kind}-{IMPORTANCE}", table, importance)]
    if history.left is not None:
        states.append((f"{kind}-{LEFT}", table, history.left))
    numbers = np.array([history.gain, history.step, history.rounds], np.float64)
    return {**state_arrays(states), history_name(kind, _NUMBERS, table): numbers}


def importance_arrays(
    place_of: Callable[[str], tuple[str, str]], histories: Mapping[str, PrunedHistory]
) -> dict[str, Array]:
    """The arrays of the tables of an engine, as a checkpoint stores them.

    ``place_of``: from a table's name in the engine to the part of the model that has it, and its name there.
    """
    found = {}
    for table, history in histories.items():
        found.update(_arrays_of(*place_of(table), history))
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
    place, name = f"{kind} table {table}", history_name(kind, _NUMBERS, table)
    importance, left = _state(arrays, kind, IMPORTANCE, table), _state(arrays, kind, LEFT, table)
    if importance is None or name not in arrays:
        raise TornCheckpoint("a checkpoint must have the importance of the rows of each pruned table", where=place,
                             allowed=name)  # fmt: skip
    numbers = arrays[name]
    if numbers.shape != (3,) or numbers.dtype != np.float64 or not np.isfinite(numbers).all():
        raise TornCheckpoint(
            "the numbers of a pruned table must be three finite ones", where=place, value=numbers.shape
        )
    if importance.weights.shape != (len(importance.rows), 1):
        raise TornCheckpoint("the importance of rows must be one number for each", where=place, value=importance.weights.shape)  # fmt: skip
    gain, step, rounds = numbers.tolist()
    values = np.ascontiguousarray(importance.weights[:, 0])
    return PrunedHistory(importance.rows, values, gain, int(step), int(rounds), left)


def _state(arrays: Mapping[str, Array], kind: str, what: str, table: str) -> TableState | None:
    """What a checkpoint has by rows of a table; None if it has nothing."""
    names = [array_name(f"{kind}-{what}", column, table) for column in TABLE_COLUMNS]
    found = [arrays[name] for name in names if name in arrays]
    if len(found) not in (0, len(names)):
        raise TornCheckpoint("what a pruned table has by rows must have rows, weights and slots", where=f"{kind}-{what} table {table}",
                             value=len(found), allowed=", ".join(names))  # fmt: skip
    return TableState(*found) if found else None


def parted_with_importance(
    place_of: Callable[[str], tuple[str, str]], engine: PrunedTables, most_bytes: int
) -> list[PartedArrays]:
    """As :func:`~trainer.training.saved_tables.parted_tables`, with the importance of the same moment."""
    return [*parted_tables(place_of, engine, most_bytes), *parted_importance(place_of, engine.histories())]


def parted_importance(
    place_of: Callable[[str], tuple[str, str]], histories: Mapping[str, PrunedHistory], *, with_numbers: bool = True
) -> list[PartedArrays]:
    """:func:`importance_arrays` for a writer that takes parts; ``with_numbers``: also those that all hosts have alike."""
    return [
        PartedArrays((ArrayKind(name, str(array.dtype), array.shape),), iter([(array,)]))
        for name, array in importance_arrays(place_of, histories).items()
        if with_numbers or table_of(name) is not None
    ]
