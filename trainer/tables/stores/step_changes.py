"""What an update of a store has changed beside the rows that it names: so that a checkpoint may leave out all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from transforms.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class TableChanges:
    """What the last update has changed of a hashed or pruned table.

    Attributes:
        numbers: int64: the places of the ids of the update in a hashed table; the rows of a pruned one that a round has moved.
        removed: int64: the ids or rows that have lost their place.
        lines: int64: the lines of candidates of a hashed table in which ids were counted.
    """

    numbers: Array
    removed: Array
    lines: Array = field(default_factory=partial(np.zeros, 0, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class StepChanges:
    """What the last update of a store has changed.

    Attributes:
        tables: of hashed and pruned tables, by their positions.
        is_all: whether what is saved of every row has changed.
    """

    tables: Mapping[int, TableChanges] = field(default_factory=dict)
    is_all: bool = False

    def joined(self, tables: Mapping[int, TableChanges]) -> StepChanges:
        """These changes and those of other tables."""
        return StepChanges({**self.tables, **tables}, self.is_all)


#: Of an update that changes the rows that it names, and nothing else.
NO_MORE_CHANGES = StepChanges()
