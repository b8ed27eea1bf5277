"""What decides about later places of a hashed table, beside its rows: saved with a state, a resumed run has the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.embedding.engine import TableState
from trainer.embedding.hashed.options import HashedTable
from trainer.errors import TornCheckpoint

Array = np.ndarray[Any, np.dtype[Any]]

_CANDIDATE_STEP_BITS = 24


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The history of the rows of a :class:`~trainer.embedding.engine.TableState`.

    Attributes:
        step: the steps of the store.
        ages: int64, the steps since the last use of each row.
        candidates: uint64, the counts of ids that wait for admission.
    """

    step: int
    ages: Array
    candidates: Array

    def shortened(self) -> TableHistory:
        """The same history with as few steps as its ages and candidates allow, so that steps never run out."""
        oldest = int(self.ages.max()) if len(self.ages) else 0
        left_out = max(self.step - oldest - 1, 0) >> _CANDIDATE_STEP_BITS << _CANDIDATE_STEP_BITS
        return TableHistory(self.step - left_out, self.ages, self.candidates)


def check_load(table: HashedTable, state: TableState, histories: Mapping[str, TableHistory] | None) -> None:
    """Raise :class:`TornCheckpoint` for more rows than the table has places, and for the history of other rows."""
    where = f"table {table.spec.name}"
    if len(state.rows) > table.places:
        raise TornCheckpoint("the rows of a hashed table must fit its capacity", where=where, value=len(state.rows),
                             allowed=f"<= {table.places}", next_step="give the table a larger capacity")  # fmt: skip
    if histories is None:
        return
    one = histories.get(table.spec.name)
    if one is None or one.ages.shape != state.rows.shape or not _are_ages(one):
        raise TornCheckpoint("the history of a table must be that of its rows", where=where,
                             value=None if one is None else (one.step, one.ages.shape))  # fmt: skip


def _are_ages(history: TableHistory) -> bool:
    types = (str(history.ages.dtype), str(history.candidates.dtype))
    if types != ("int64", "uint64") or not 0 <= history.step < 1 << 62:
        return False
    return bool(
        ((history.ages >= 0) & (history.ages < max(history.step, 1)) & (history.ages < (1 << 32) - (1 << 25))).all()
    )
