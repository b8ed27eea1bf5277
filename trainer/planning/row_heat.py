"""How hot rows are: sums of their lookups, which halve with every so many lookups of the table. No I/O."""

from __future__ import annotations

from typing import Final

import numpy as np

from transforms.arrays import Array

#: Tables with more rows share this many cells, two of which a row has.
MOST_CELLS: Final = 1 << 24
#: Heat is stored times a scale that grows in place of all heat shrinking; beyond 2 to this power both are divided by it.
_MOST_DOUBLINGS: Final = 40.0
_HASHES: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95))


class RowHeat:
    """The heat of the rows of a table, float32: the lookups of each, of which those ``half_life`` lookups ago count half.

    A table of at most ``cells`` rows has a cell a row. In a larger one a row has two cells, which it shares with others, and the heat
    of the colder one: never less than its own.
    """

    def __init__(self, rows: int, half_life: float, *, cells: int = MOST_CELLS) -> None:
        self._is_exact = rows <= cells
        self._heat = np.zeros(rows if self._is_exact else cells, np.float32)
        self._doublings, self.shrinks = 0.0, 0
        self.half_life = half_life

    def add(self, rows: Array, lookups: Array) -> None:
        """Add the lookups of distinct rows, after all heat has aged by them."""
        self._doublings += float(lookups.sum()) / self.half_life
        if self._doublings > _MOST_DOUBLINGS:
            self._heat *= np.float32(2.0**-self._doublings)
            self._doublings = 0.0
            self.shrinks += 1
        heat = (lookups * 2.0**self._doublings).astype(np.float32)
        if self._is_exact:
            self._heat[rows] += heat
            return
        first, second = (self._cells(rows, factor) for factor in _HASHES)
        np.add.at(self._heat, first, heat)
        np.add.at(self._heat, second, np.where(first == second, np.float32(0.0), heat))

    def of(self, rows: Array) -> Array:
        """The heat of these rows, float32."""
        return self.stored(rows) * np.float32(2.0**-self._doublings)

    def stored(self, rows: Array) -> Array:
        """As :meth:`of`, times a scale that all rows share: that of a row without lookups stays equal until ``shrinks`` grows."""
        if self._is_exact:
            found: Array = self._heat[rows]
            return found
        first, second = (self._heat[self._cells(rows, factor)] for factor in _HASHES)
        return np.minimum(first, second)

    @property
    def scale(self) -> float:
        """What :meth:`stored` is divided by."""
        return float(2.0**self._doublings)

    def _cells(self, rows: Array, factor: np.uint64) -> Array:
        with np.errstate(over="ignore"):
            mixed = rows.astype(np.uint64) * factor
        found: Array = ((mixed >> np.uint64(24)) % np.uint64(len(self._heat))).astype(np.int64)
        return found
