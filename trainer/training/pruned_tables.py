"""The importance of the rows of pruned tables in checkpoints, as of the moment of the rows.

Arrays under ``history/`` beside those of the tables. With them, a run that goes on prunes as one that was never stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from trainer.checkpoints.parted_arrays import ArrayKind, PartedArrays
from trainer.embedding.pruned.engine import PrunedEngine
from trainer.embedding.pruned.history import PrunedHistory
from trainer.errors import TornCheckpoint
from trainer.training.saved_tables import history_name, own_place, parted_tables

Array = np.ndarray[Any, np.dtype[Any]]

#: Rows with importance, their importance, and the numbers of the engine: gain, step, rounds.
_COLUMNS = ("importance_rows", "importance", "pruning")


def _arrays_of(history: PrunedHistory) -> tuple[Array, Array, Array]:
    return history.rows, history.importance, np.array([history.gain, history.step, history.rounds], np.float64)


def importance_arrays(kind: str, histories: Mapping[str, PrunedHistory]) -> dict[str, Array]:
    """The arrays of the tables of a part of the model, as a checkpoint stores them."""
    return {
        history_name(kind, column, table): array
        for table, history in histories.items()
        for column, array in zip(_COLUMNS, _arrays_of(history), strict=True)
    }


def saved_importance(arrays: Mapping[str, Array], kind: str, tables: Sequence[str]) -> dict[str, PrunedHistory]:
    """The inverse of :func:`importance_arrays`. Raises :class:`TornCheckpoint` for tables without importance."""
    return {table: _history(arrays, kind, table) for table in tables}


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
    return PrunedHistory(rows, importance, float(numbers[0]), int(numbers[1]), int(numbers[2]))


def parted_with_importance(kind: str, engine: PrunedEngine, most_bytes: int) -> list[PartedArrays]:
    """As :func:`~trainer.training.saved_tables.parted_tables`, with the importance of the same moment."""
    found = parted_tables(partial(own_place, kind), engine, most_bytes)
    for table, history in engine.histories().items():
        arrays = _arrays_of(history)
        kinds = tuple(
            ArrayKind(history_name(kind, column, table), str(array.dtype), array.shape)
            for column, array in zip(_COLUMNS, arrays, strict=True)
        )
        found += [PartedArrays((of,), iter([(array,)])) for of, array in zip(kinds, arrays, strict=True)]
    return found
