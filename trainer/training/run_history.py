"""The histories of hashed tables in checkpoints: the ages of their rows, their steps, and the counts of ids that wait for admission.

They are arrays beside those of the tables, under ``history/``: a run without hashed tables has none. With them, a run that goes on evicts and
admits as one that was never stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.checkpoints.parted_arrays import ArrayKind, PartedArrays
from trainer.embedding.optimizers import slot_width
from trainer.embedding.ps.engine import PsEngine
from trainer.embedding.ps.hashed_snapshot import HashedTableSnapshot
from trainer.embedding.ps.saved_history import SavedHistory
from trainer.errors import TornCheckpoint
from trainer.training.one_engine import place_of
from trainer.training.saved_tables import check_finite_values, finite_parts, history_name, table_arrays

Array = np.ndarray[Any, np.dtype[Any]]

_COLUMNS = ("ages", "steps", "candidates")


def history_arrays(histories: Iterable[tuple[str, str, SavedHistory]]) -> dict[str, Array]:
    """The arrays of histories as a checkpoint stores them, from the part of the model, the name and the history of each table."""
    return {
        history_name(kind, column, table): getattr(history, column)
        for kind, table, history in histories
        for column in _COLUMNS
    }


def saved_history(arrays: Mapping[str, Array], kind: str, table: str) -> SavedHistory:
    """The history of a table, the inverse of :func:`history_arrays`. Raises :class:`TornCheckpoint` if it is not there."""
    names = [history_name(kind, column, table) for column in _COLUMNS]
    if any(name not in arrays for name in names):
        raise TornCheckpoint("a checkpoint must have the history of each hashed table", where=f"{kind} table {table}",
                             allowed=", ".join(names))  # fmt: skip
    return SavedHistory(*(arrays[name] for name in names))


def parted_with_histories(engine: PsEngine, most_bytes: int) -> list[PartedArrays]:
    """As :func:`~trainer.training.run_state.parted_tables`, for an engine some of whose tables are hashed."""
    snapshot = engine.begin_snapshot(most_bytes=most_bytes)
    found = []
    for t, (table, count) in enumerate(zip(engine.tables, snapshot.counts, strict=True)):
        kind, name = place_of(table.name)
        kinds = table_arrays(kind, name, count, table.dim, slot_width(table.optimizer, table.dim))
        hashed, where = snapshot.hashed(t), f"{kind} table {name}"
        if hashed is None:
            found.append(PartedArrays(kinds, finite_parts(snapshot, t, where)))
            continue
        ages = ArrayKind(history_name(kind, "ages", name), "int64", (count,))
        steps = ArrayKind(history_name(kind, "steps", name), "int64", (engine.server_count,))
        of_each = engine.candidates_of(table.name)
        candidates = ArrayKind(history_name(kind, "candidates", name), "uint64", (engine.server_count * of_each,))
        found += [
            PartedArrays((*kinds, ages), _aged_parts(hashed, where)),
            PartedArrays((steps,), _steps(hashed)),
            PartedArrays((candidates,), ((one,) for one in hashed.candidates(of_each))),
        ]
    return found


def _aged_parts(hashed: HashedTableSnapshot, where: str) -> Iterator[Sequence[Array]]:
    for rows, ages in hashed.rows():
        check_finite_values(rows, where)
        yield rows.rows, rows.weights, rows.slots, ages


def _steps(hashed: HashedTableSnapshot) -> Iterator[Sequence[Array]]:
    yield (np.array(hashed.steps(), np.int64),)
