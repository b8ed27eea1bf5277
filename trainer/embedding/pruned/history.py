"""What a pruned table has beside its rows: the importance of all rows that were looked up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainer.embedding.engine import TableSections, TableState
from trainer.embedding.spec import TableSpec
from trainer.embedding.state_checks import check_state
from trainer.errors import TornCheckpoint
from transforms.arrays import Array

#: The sections of a pruned table: the importance of its rows, the values of rows that left their places, and numbers of all tables.
IMPORTANCE, LEFT, NUMBERS = "importance", "left", "pruning"
#: Those that each has.
SECTIONS = (IMPORTANCE, NUMBERS)
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

    def sections(self) -> TableSections:
        """The history as sections of the table's state, the inverse of :meth:`read`."""
        no_slots = np.zeros((len(self.rows), 0), np.float32)
        by_rows = {IMPORTANCE: TableState(self.rows, self.importance.reshape(-1, 1), no_slots)}
        if self.left is not None:
            by_rows[LEFT] = self.left
        return TableSections(by_rows, {NUMBERS: np.array([self.gain, self.step, self.rounds], np.float64)})

    @classmethod
    def read(cls, table: str, sections: TableSections) -> PrunedHistory | None:
        """The history of a table; None for a state that has none. Raises :class:`TornCheckpoint` for sections of other shapes."""
        importance, numbers = sections.by_rows.get(IMPORTANCE), sections.arrays.get(NUMBERS)
        if importance is None or numbers is None:
            return None
        if numbers.shape != (3,) or numbers.dtype != np.float64 or not np.isfinite(numbers).all():
            raise TornCheckpoint("the numbers of a pruned table must be three finite ones", where=f"table {table}", value=numbers.shape)  # fmt: skip
        if importance.weights.shape != (len(importance.rows), 1):
            raise TornCheckpoint("the importance of rows must be one number for each", where=f"table {table}", value=importance.weights.shape)  # fmt: skip
        gain, step, rounds = numbers.tolist()
        values = np.ascontiguousarray(importance.weights[:, 0])
        return cls(importance.rows, values, gain, int(step), int(rounds), sections.by_rows.get(LEFT))

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
