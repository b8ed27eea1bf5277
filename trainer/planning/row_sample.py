"""A sample of the rows that a feature looks up, chosen by hash, with the exact ids of each. Immutable; no I/O.

Samples of the same feature choose the same rows, so two samples merge without an error: a row that is new in one is known from
the other. That is what shares of rows cannot do, and what an estimate of rows that no sample has seen needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.row_frequencies import HEAD_ROWS
from transforms.arrays import Array

#: The most rows that a hash chooses: about 20 kB of a document.
MOST_SAMPLE_ROWS: Final = 1024
_MOST_LEVEL: Final = 62
#: A count below this is no longer part of an aged sample.
_FADED: Final = 2.0**-10
#: The sums are floating-point numbers.
_ROUNDING: Final = 1.0 + 1e-6
_MOST: Final = 2.0**62


#: A row with its ids, and the number of batches that hold it; both are aged as the sums of the statistics are.
Counted = tuple[int, float, float]


@dataclass(frozen=True, slots=True)
class RowSample:
    """The rows whose hash is a multiple of 2 ** ``level``, and the most frequent others. Raises :class:`ConfigError` for impossible counts.

    Attributes:
        level: one row in 2 ** level is chosen by its hash.
        ids: the ids of all rows. 0: nothing is known, as of statistics of earlier releases.
        rows: those that are chosen, ascending, with exact counts.
        heavy: the most frequent ones that are not, ascending; their counts may be too low, by what they had while they were rare.
    """

    level: int = 0
    ids: float = 0.0
    rows: tuple[Counted, ...] = ()
    heavy: tuple[Counted, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.level <= _MOST_LEVEL or len(self.rows) > MOST_SAMPLE_ROWS or len(self.heavy) > HEAD_ROWS:
            raise ConfigError("a sample of rows must have few entries", value=(self.level, len(self.rows), len(self.heavy)),
                              allowed=f"a level of at most {_MOST_LEVEL}, {MOST_SAMPLE_ROWS} and {HEAD_ROWS} rows")  # fmt: skip
        for rows in (self.rows, self.heavy):
            numbers = [row for row, _, _ in rows]
            if any(one >= other for one, other in pairwise((-1, *numbers, 1 << 63))):
                raise ConfigError(
                    "the rows of a sample must be distinct and ascending", value=numbers[:8], allowed="[0, 2 ** 63)"
                )
            if (_is_chosen(numbers, self.level) != (rows is self.rows)).any():
                raise ConfigError("the rows of a sample must be those that its level chooses", value=numbers[:8])
        if not all(0.0 < batches <= ids * _ROUNDING for _, ids, batches in (*self.rows, *self.heavy)):
            raise ConfigError(
                "a row of a sample must have at least one batch, and at least one id per batch",
                value=self.rows[:4],
                allowed="0 < batches <= ids",
            )
        known = math.fsum(ids for _, ids, _ in (*self.rows, *self.heavy))
        if not known <= self.ids * _ROUNDING <= _MOST:
            raise ConfigError("a sample must count at least the ids of its rows", value=self.ids,
                              allowed=f"{known:.6g} to {_MOST:.0f}")  # fmt: skip

    @staticmethod
    def of_counts(level: int, ids: float, counts: Mapping[int, tuple[float, float]]) -> RowSample:
        """As many rows as fit; ``counts``: the ids and batches of every row that ``level`` chooses, and of other frequent ones."""
        numbers = sorted(row for row, one in counts.items() if one[0] >= _FADED)
        chosen = _is_chosen(numbers, level)
        while np.count_nonzero(chosen) > MOST_SAMPLE_ROWS:
            level += 1
            chosen = _is_chosen(numbers, level)
        rows, others = (
            [row for row, is_chosen in zip(numbers, chosen.tolist(), strict=True) if is_chosen is wanted]
            for wanted in (True, False)
        )
        heavy = sorted(sorted(others, key=lambda row: (-counts[row][0], row))[:HEAD_ROWS])
        return RowSample(level, ids, *(tuple((row, *counts[row]) for row in listed) for listed in (rows, heavy)))

    def merged(self, other: RowSample, own_weight: float, *, is_same_time: bool = False) -> RowSample:
        """Both, with the counts of this one times ``own_weight``.

        Args:
            is_same_time: whether the batches of both are parts of the same batches, as those of a job's hosts are.
        """
        counts = {row: (own_weight * ids, own_weight * batches) for row, ids, batches in (*self.rows, *self.heavy)}
        for row, ids, batches in (*other.rows, *other.heavy):
            own_ids, own_batches = counts.get(row, (0.0, 0.0))
            both = max(own_batches, batches) if is_same_time else own_batches + batches
            counts[row] = own_ids + ids, both
        return RowSample.of_counts(max(self.level, other.level), own_weight * self.ids + other.ids, counts)


def row_hashes(rows: Array) -> Array:
    """The hash of each row, int64 and at least 0: the one by which a sketch of rows chooses its sample."""
    mixed = rows.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Array = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
    return found


def _is_chosen(rows: Sequence[int], level: int) -> Array:
    found: Array = (row_hashes(np.array(rows, np.int64)) & np.int64((1 << level) - 1)) == 0
    return found


#: Of statistics of earlier releases.
NO_SAMPLE: Final = RowSample()
