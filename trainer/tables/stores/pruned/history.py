"""What a pruned table has beside its rows: the importance of all rows that were looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.errors import BadBatch, TornCheckpoint
from trainer.tables.engine import TableSections, TableState
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.spec import TableSpec
from trainer.tables.state_checks import check_state
from transforms.arrays import Array

#: The sections of a pruned table: the importance of its rows, the values of rows that left their places, and numbers of all tables.
IMPORTANCE, LEFT, NUMBERS = "importance", "left", "pruning"
#: Those that each has.
SECTIONS = (IMPORTANCE, NUMBERS)
_MOST_STEPS = 1 << 62
#: The numbers of :func:`kept_numbers` beside the step.
NUMBER_WORDS = 2


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
        return TableSections(by_rows, {NUMBERS: numbers_array(self.gain, self.step, self.rounds)})

    @classmethod
    def read(cls, table: str, sections: TableSections) -> PrunedHistory | None:
        """The history of a table; None for a state that has none. Raises :class:`TornCheckpoint` for sections of other shapes."""
        importance, numbers = sections.by_rows.get(IMPORTANCE), sections.arrays.get(NUMBERS)
        if importance is None or numbers is None:
            return None
        if numbers.shape != (3,) or numbers.dtype != np.float64 or not np.isfinite(numbers).all():
            raise TornCheckpoint("a pruned table must save three finite numbers", where=f"table {table}", value=numbers.shape)  # fmt: skip
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
            raise TornCheckpoint("the importance of a pruned table must fit its rows", where=f"table {table.name}", value=len(rows),
                                 next_step="restore an earlier checkpoint")  # fmt: skip


def read_histories(tables: Sequence[TableSpec], state: Mapping[str, TableState]) -> dict[int, PrunedHistory]:
    """The histories in the state of some of the tables, by position, where there are some. Raises :class:`TornCheckpoint`."""
    found = {}
    for t, table in enumerate(tables):
        if table.name not in state:
            continue
        if (one := PrunedHistory.read(table.name, state[table.name].sections)) is not None:
            one.check(table)
            found[t] = one
    known = {(one.gain, one.step) for one in found.values()}
    if len(known) > 1:
        raise TornCheckpoint("all pruned tables must have the importance of one step", value=sorted(known)[:4])
    return found


def numbers_array(gain: float, step: int, rounds: int) -> Array:
    """The numbers of pruned tables as their section has them."""
    return np.array([gain, step, rounds], np.float64)


def kept_numbers(gain: float, step: int, rounds: int) -> KeptHistory:
    """The numbers of pruned tables as a server keeps them and sends them, the inverse of :func:`read_numbers`."""
    bits = np.array([gain], np.float64).view(np.uint64)
    return KeptHistory(step, np.concatenate([bits, np.array([rounds], np.uint64)]))


def read_numbers(history: KeptHistory) -> tuple[float, int, int]:
    """The gain, the step and the rounds. Raises :class:`BadBatch` for others than those of pruned tables."""
    words = history.candidates
    gain = float(words[:1].view(np.float64)[0]) if len(words) == NUMBER_WORDS else 0.0
    if not (1.0 <= gain < float("inf")) or int(words[1]) > _MOST_STEPS or history.evicted:
        raise BadBatch(
            "the history of a pruned table must be its gain, step and rounds", value=(len(words), gain, history.evicted)
        )
    return gain, history.step, int(words[1])
