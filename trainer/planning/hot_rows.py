"""Which rows of a table are in the frames of the memory that trains, each of which holds a row: decided after each batch, by the heat of rows. No I/O.

A row that was looked up takes a free frame, or that of the coldest row if it is hotter by what a move costs. Equal batches give equal
decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.half_lives import HalfLives
from trainer.planning.row_heat import MOST_CELLS, RowHeat
from transforms.arrays import Array

#: What a move costs by default, in lookups: a row on its first lookup takes the place of no other.
MOVE_LOOKUPS: Final = 1.0
#: The coldest rows are listed at once, at least so many and this part of the frames.
_LISTED_ROWS, _LISTED_PART = 64, 16
#: They are listed again after so many lookups for each frame.
_LISTED_EVERY: Final = 4.0
_NO_ROWS: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Rows to bring into frames: int64 arrays of equal length; ``rows_out``: the row that leaves each frame, -1 if it is free."""

    rows_in: Array
    frames: Array
    rows_out: Array

    def __len__(self) -> int:
        return len(self.rows_in)


NO_MOVES: Final = Moves(_NO_ROWS, _NO_ROWS, _NO_ROWS)


class HotRows:
    """The rows in ``frames`` frames of a table of ``rows`` rows.

    Args:
        move_lookups: how much hotter than the row whose frame it takes a row must be, in lookups.
        half_life: of heat, in lookups; None: the one of :class:`~trainer.planning.half_lives.HalfLives` that does best.
        cells: for the heat of rows, see :class:`~trainer.planning.row_heat.RowHeat`.

    Raises :class:`ConfigError` for sizes that are not possible.
    """

    def __init__(
        self, rows: int, frames: int, *, move_lookups: float = MOVE_LOOKUPS, half_life: float | None = None, cells: int = MOST_CELLS
    ) -> None:  # fmt: skip
        if not 1 <= frames <= rows:
            raise ConfigError(
                "the number of hot rows must be at most the rows of the table", value=frames, allowed=f"1 to {rows}"
            )
        if not move_lookups >= 0.0 or not (half_life is None or half_life > 0.0):
            raise ConfigError("move_lookups must be >= 0, and half_life > 0", value=(move_lookups, half_life))
        self.frames, self._move_lookups = frames, move_lookups
        self._lives = HalfLives(rows, frames, move_lookups) if half_life is None else None
        self._heat = RowHeat(rows, half_life or (self._lives.best if self._lives else 1.0), cells=cells)
        self._frame_of = np.zeros(rows, np.int32)  # the frame + 1: the system commits what is written
        self._row_of = np.zeros(frames, np.int64)
        self._used = 0
        self._listed, self._bound, self._shrinks, self._unlisted = _NO_ROWS, 0.0, 0, 0.0

    @property
    def half_life(self) -> float:
        """The current half-life of heat, in lookups."""
        return self._heat.half_life

    def frames_of(self, rows: Array) -> Array:
        """The frame of each row, -1 if it is in none."""
        found: Array = self._frame_of[rows] - 1
        return found

    def placed(self) -> Array:
        """The row in each used frame, frame by frame."""
        return self._row_of[: self._used].copy()

    def decide(self, rows: Array, lookups: Array) -> Moves:
        """Add a batch of distinct rows, int64, with the lookups of each; returns the moves, which are taken to be made."""
        if not len(rows):
            return NO_MOVES
        self._heat.add(rows, lookups)
        if self._lives is not None:
            self._lives.add(rows, lookups)
            self._heat.half_life = self._lives.best
        self._unlisted += float(lookups.sum())
        if self._unlisted > _LISTED_EVERY * self.frames:
            self._listed = _NO_ROWS  # rows that came later may be colder
        missed = rows[self._frame_of[rows] == 0]
        if not len(missed):
            return NO_MOVES
        heat = self._heat.stored(missed)
        if self._used == self.frames:
            may_move = heat > self._coldest_heat() + self._price()
            missed, heat = missed[may_move], heat[may_move]
            if not len(missed):
                return NO_MOVES
        order = np.lexsort((missed, -heat))
        missed, heat = missed[order], heat[order]
        free = min(self.frames - self._used, len(missed))
        first = Moves(missed[:free], np.arange(self._used, self._used + free), np.full(free, -1))
        self._used += free
        self._place(first)
        other = self._replacements(missed[free:], heat[free:])
        self._place(other)
        return Moves(*(np.concatenate([getattr(one, name) for one in (first, other)]) for name in Moves.__slots__))

    def _place(self, moves: Moves) -> None:
        self._frame_of[moves.rows_out[moves.rows_out >= 0]] = 0
        self._frame_of[moves.rows_in] = moves.frames + 1
        self._row_of[moves.frames] = moves.rows_in

    def _price(self) -> float:
        return self._move_lookups * self._heat.scale

    def _coldest_heat(self) -> float:
        """The stored heat of the coldest listed row; 0 if none is listed."""
        if not len(self._listed) or self._heat.shrinks != self._shrinks:
            return 0.0
        return float(self._stored(self._listed[:1])[0])

    def _replacements(self, rows: Array, heat: Array) -> Moves:
        """The moves of ``rows``, the hottest first, into frames of rows that are colder by the price of a move."""
        count = min(int(np.count_nonzero(heat > self._price())), self.frames)  # no row is colder than 0
        if not count:
            return NO_MOVES
        frames = self._coldest(count)
        leaving = self._row_of[frames]
        pays = heat[: len(frames)] > self._heat.stored(leaving) + np.float32(self._price())
        moved = int(np.count_nonzero(pays))  # rows descend and frames ascend in heat: these are the first
        self._listed = np.concatenate([frames[moved:], self._listed[len(frames) :]])
        return Moves(rows[:moved], frames[:moved], leaving[:moved])

    def _coldest(self, count: int) -> Array:
        """The frames of the ``count`` coldest listed rows, coldest first, at the head of the list.

        Rows that were looked up since they were listed are left out: they are hotter than all listed ones were.
        """
        if self._heat.shrinks != self._shrinks:
            self._listed = _NO_ROWS  # stored heat has shrunk
        head = self._listed[:count]
        while len(head) and (risen := self._stored(head) > self._bound).any():
            self._listed = np.concatenate([head[~risen], self._listed[len(head) :]])
            head = self._listed[:count]
        if len(head) < count:
            size = min(max(_LISTED_ROWS, self.frames // _LISTED_PART, 2 * count), self.frames)
            stored = self._stored(np.arange(self.frames))
            listed = np.argpartition(stored, size - 1)[:size]
            self._listed = listed[np.lexsort((listed, stored[listed]))]
            self._bound, self._shrinks, self._unlisted = float(stored[listed].max()), self._heat.shrinks, 0.0
            head = self._listed[:count]
        ordered = head[np.lexsort((head, self._stored(head)))]
        self._listed[: len(head)] = ordered
        return ordered

    def _stored(self, frames: Array) -> Array:
        return self._heat.stored(self._row_of[frames])
