"""What training notes of the rows that it updates: how important each is (AdaEmbed, Lai et al., OSDI 2023, section 4.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainer.tables.kernels.row_updates import sum_of_squares
from transforms.arrays import Array
from transforms.kernels.compiled import inlined

_ZERO = np.float32(0.0)


class Importance(NamedTuple):
    """Where the importance of rows is added up.

    Attributes:
        values: float32, of each row of all tables; empty: nothing is noted.
        factors: float32 [3]: what an update counts now, and whether it is multiplied by the lookups of the row and by the norm of its gradient.
    """

    values: Array
    factors: Array

    @property
    def counts_lookups(self) -> bool:
        """Whether it matters how often a row was looked up."""
        return len(self.values) > 0 and bool(self.factors[1])


NO_IMPORTANCE = Importance(np.zeros(0, np.float32), np.zeros(3, np.float32))


@inlined
def importance_of(factors: Array, lookups: int, sums: Array, at: int, dim: int) -> np.float32:
    """What one update of a row adds to its importance; ``sums[at : at + dim]`` is its summed gradient."""
    found = factors[0]
    if factors[1] != _ZERO:
        found *= np.float32(lookups)
    if factors[2] != _ZERO:
        found *= np.sqrt(sum_of_squares(sums, at, dim))
    return np.float32(found)
