"""What a pruned table has beside its rows: the importance of all rows that were looked up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainer.embedding.engine import TableState
from trainer.embedding.spec import TableSpec
from trainer.embedding.state_checks import check_state
from trainer.errors import TornCheckpoint

Array = np.ndarray[Any, np.dtype[Any]]

_MOST_STEPS = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class PrunedHistory:
    """The importance of a table's rows at one moment.

    Attributes:
        rows: int64, ascending: those that have any.
        importance: float32, of each of them.
        gain: what an update counts for now; it grows as importance decays.
        step: the updates of the engine.
        rounds: its rounds of pruning.
        left: the values that rows had when they left their places, which the reset rule ``restored`` returns; None by other rules.
    """

    rows: Array
    importance: Array
    gain: float
    step: int
    rounds: int
    left: TableState | None = None

    def renumbered(self, number: Callable[[Array], Array]) -> PrunedHistory:
        """The same history of rows with other numbers, which ``number`` gives, ascending as they are."""
        left = None if self.left is None else replace(self.left, rows=number(self.left.rows))
        return replace(self, rows=number(self.rows), left=left)

    def check(self, table: TableSpec) -> None:
        """Raise :class:`TornCheckpoint` for a history that the table does not have."""
        vocabulary = table.vocabulary_size
        if self.left is not None:
            check_state(table, self.left)
        rows, values = self.rows, self.importance
        fits = rows.dtype == np.int64 and values.dtype == np.float32 and rows.ndim == 1 and rows.shape == values.shape
        if fits and len(rows):
            fits = int(rows[0]) >= 0 and int(rows[-1]) < vocabulary and bool((rows[1:] > rows[:-1]).all())
            fits = fits and bool(np.isfinite(values).all()) and bool((values > 0).all())
        if (
            not fits
            or not (1.0 <= self.gain < float("inf"))
            or not (0 <= self.step <= _MOST_STEPS and 0 <= self.rounds <= _MOST_STEPS)
        ):
            raise TornCheckpoint("the importance of a pruned table must be that of its rows", where=f"table {table.name}", value=len(rows),
                                 next_step="restore an earlier checkpoint")  # fmt: skip
