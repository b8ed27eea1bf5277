"""The rows that training updates while their tables are copied: a mark for each row, or for a block of rows of large tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from trainer.tables.routes.partitioned.requests import RowsByOwner
from trainer.tables.routes.partitioned.table_parts import TableParts
from transforms.arrays import Array

#: Marks of all tables, a byte each.
MOST_MARKS = 256 << 20
#: Marks that are searched at once.
_SEARCHED = 1 << 20


class NotedRows:
    """Marks rows of the tables of ``parts``.

    Args:
        parts: of the engine whose updates are noted.
        most_marks: memory for marks, in bytes. Above it a mark is for a block of rows, all of which count as noted.
        unmarked: the names of tables whose rows are not noted.
    """

    def __init__(self, parts: TableParts, most_marks: int = MOST_MARKS, unmarked: Collection[str] = ()) -> None:
        self._parts = parts
        self._is_marked = [one.name not in unmarked for one in parts.tables]
        self._sizes = [one.vocabulary_size if one.name not in unmarked else 1 for one in parts.tables]
        self._shift = 0
        while sum(self._marks_of(rows) for rows in self._sizes) > max(most_marks, len(self._sizes)):
            self._shift += 1
        self._marks = [np.zeros(self._marks_of(rows), np.uint8) for rows in self._sizes]  # taken when they are written

    def _marks_of(self, rows: int) -> int:
        return (rows - 1 >> self._shift) + 1

    @property
    def block_rows(self) -> int:
        """The rows of a mark."""
        return 1 << self._shift

    @property
    def count(self) -> int:
        """The rows that are noted, at most."""
        return sum(int(np.count_nonzero(marks)) for marks in self._marks) << self._shift

    def add(self, updates: RowsByOwner) -> None:
        """Note the rows of an update."""
        parts = self._parts
        for owner in range(parts.cores):
            own = updates.rows[updates.of_owner(owner)]
            ends = np.cumsum(updates.counts[owner])
            for t, p in enumerate(parts.first_part[:-1].tolist()):  # a row is updated in all slices of its columns
                rows = own[ends[p] - updates.counts[owner, p] : ends[p]]
                if len(rows) and self._is_marked[t]:
                    self._marks[t][parts.parts[p].whole_rows(owner, rows) >> self._shift] = 1

    def windows(self, t: int, most_rows: int) -> Iterator[Array]:
        """The noted rows of a table, int64 and ascending, at most so many at once."""
        marks, step = self._marks[t], max(most_rows >> self._shift, 1)
        for first in range(0, len(marks), _SEARCHED):
            found = first + np.flatnonzero(marks[first : first + _SEARCHED])
            for at in range(0, len(found), step):
                yield from self._rows(t, found[at : at + step], most_rows)

    def _rows(self, t: int, blocks: Array, most_rows: int) -> Iterator[Array]:
        """The rows of blocks."""
        rows = (blocks[:, None] << self._shift) + np.arange(self.block_rows)
        rows = rows.reshape(-1)[
            : max(self._sizes[t] - int(blocks[-1] << self._shift), 0) + (len(blocks) - 1 << self._shift)
        ]
        for first in range(0, len(rows), most_rows):
            yield rows[first : first + most_rows]
