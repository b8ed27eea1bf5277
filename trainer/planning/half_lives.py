"""Which half-life of heat suits a table: several are tried at once, on a sample of its rows. No I/O."""

from __future__ import annotations

from typing import Final

import numpy as np

from transforms.arrays import Array

#: Half-lives that are compared, in lookups for each frame: the shortest act as least recently used, the longest as least frequently used.
LOOKUPS_PER_FRAME: Final = tuple(float(1 << k) for k in range(9))
#: The most rows of the sample.
SAMPLED_ROWS: Final = 1 << 13
_FIRST: Final = LOOKUPS_PER_FRAME.index(16.0)
#: The sample's rows are ranked again when lookups have doubled, at the latest after so many lookups for each frame.
_RANKED_EVERY: Final = 32.0
#: Scores halve after so many lookups for each frame.
_REMEMBERED: Final = 32.0
#: Another half-life must hit this share of the lookups more.
_LEAST_GAIN: Final = 0.001
_MOST_DOUBLINGS: Final = 40.0


class HalfLives:
    """The half-life whose hottest rows would have had the most of the last lookups, less the price of moving them.

    Each half-life has the heat of every ``stride``-th row, and the heat that the sample's share of the frames is above. A lookup of a
    row above it is a hit of that half-life, and a row that a batch lifts above it is a move. Another half-life takes over when it has
    gained a thousandth of the lookups more.

    Args:
        rows: the rows of the table.
        frames: those that can be hot.
        move_lookups: what a move costs.
    """

    def __init__(self, rows: int, frames: int, move_lookups: float) -> None:
        self._stride = -(-rows // SAMPLED_ROWS)
        self._offset = self._stride // 2
        sampled = len(range(self._offset, rows, self._stride))
        self._place = max(sampled - 1 - round(frames / self._stride), 0)
        self._frames, self._move_lookups = frames, move_lookups
        self._lives = frames * np.array(LOOKUPS_PER_FRAME)
        self._heat = np.zeros((len(self._lives), sampled), np.float32)
        self._doublings, self._least = np.zeros(len(self._lives)), np.zeros(len(self._lives))
        self._gains, self._lookups = np.zeros(len(self._lives)), 0.0
        self._total, self._next_rank, self._best = 0.0, float(frames), _FIRST

    @property
    def best(self) -> float:
        """The chosen half-life, in lookups."""
        return float(self._lives[self._best])

    def add(self, rows: Array, lookups: Array) -> None:
        """Score a batch of distinct rows, and add it to the heat."""
        total = float(lookups.sum())
        chosen = np.flatnonzero(rows % self._stride == self._offset)
        self._age(total)
        scales = 2.0**self._doublings
        sampled, own = rows[chosen] // self._stride, lookups[chosen].astype(np.float64)
        before = self._heat[:, sampled]
        after = before + (scales[:, None] * own).astype(np.float32)
        self._heat[:, sampled] = after
        is_hot = before > (self._least * scales)[:, None]
        moves = np.count_nonzero(
            after > ((self._least + self._move_lookups) * scales)[:, None], axis=1
        ) - np.count_nonzero(is_hot, axis=1)
        kept = 0.5 ** (total / (_REMEMBERED * self._frames))
        self._gains = kept * self._gains + is_hot @ own - self._move_lookups * np.maximum(moves, 0)
        self._lookups = kept * self._lookups + float(own.sum())
        self._total += total
        if self._total >= self._next_rank:
            self._least = np.sort(self._heat, axis=1)[:, self._place] / scales  # faster than a partition
            self._choose()
            self._next_rank = self._total + min(self._total, _RANKED_EVERY * self._frames)

    def _age(self, lookups: float) -> None:
        self._doublings += lookups / self._lives
        for k in np.flatnonzero(self._doublings > _MOST_DOUBLINGS):
            self._heat[k] *= np.float32(2.0 ** -self._doublings[k])
            self._doublings[k] = 0.0

    def _choose(self) -> None:
        best = int(np.argmax(self._gains))
        if self._gains[best] > self._gains[self._best] + _LEAST_GAIN * self._lookups:
            self._best = best
