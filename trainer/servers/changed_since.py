"""Which rows of a server were changed since it wrote a full shard, so that the next shards have those rows alone.

Each row has the number of the interval between two snapshots in which it was changed last. So any full shard that was written at the end of an
interval may be the base of later ones. The numbers are in the memory of the process: after a restart of it the next shard is full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainer.tables.kernels.noted_intervals import note_rows
from transforms.arrays import Array

#: Full shards that may become a base: one that is published, and those that were written since.
_MOST_SHARDS = 4
_MOST_INTERVALS = np.iinfo(np.uint16).max


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRowsOf:
    """Which rows were changed between a full shard and a snapshot, a bit for each row.

    Attributes:
        starts: where the bits of each table begin, and where the last ones end.
        bits: uint8, eight rows each, the first one lowest.
    """

    starts: Array
    bits: Array

    def of_range(self, t: int, first: int, stop: int) -> Array:
        """Whether the rows of a table from ``first`` to ``stop`` were changed."""
        at = int(self.starts[t]) + first
        found = np.unpackbits(self.bits[at // 8 : -(-(at + stop - first) // 8)], bitorder="little")
        changed: Array = found[at % 8 : at % 8 + stop - first].view(bool)
        return changed

    def count(self, t: int) -> int:
        """The changed rows of a table."""
        size, step = int(self.starts[t + 1] - self.starts[t]), 1 << 24
        return sum(int(self.of_range(t, at, min(at + step, size)).sum()) for at in range(0, size, step))


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotInterval:
    """What is known at the moment of a snapshot.

    Attributes:
        number: of the interval that begins.
        since: the rows that were changed since each full shard that may be a base, by its name.
    """

    number: int = 0
    since: Mapping[str, ChangedRowsOf] = field(default_factory=dict)


class ChangedSince:
    """The intervals of the rows of some tables. Calls come from threads that have the lock of the rows, but for :meth:`wrote`.

    Args:
        sizes: the rows of each table; 0 for one that shards always have as a whole.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = np.array(sizes, np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)])
        self._intervals = np.zeros(int(self._starts[-1]), np.uint16)  # the system commits what is written
        self._interval = self._first = 1
        self._full: dict[str, int] = {}

    def note(self, rows: Array, counts: Array) -> None:
        """Note rows, table after table, that have just changed."""
        note_rows(rows, counts, self._starts, self._interval, self._intervals)

    def begin(self) -> SnapshotInterval:
        """Begin the interval after a snapshot."""
        if self._interval == _MOST_INTERVALS:
            self._intervals[:] = 0
            self._interval = 0
            self.forget()
        self._interval += 1
        since = {
            name: ChangedRowsOf(self._starts, np.packbits(self._intervals >= number, bitorder="little"))
            for name, number in list(self._full.items())
        }
        return SnapshotInterval(self._interval, since)

    def forget(self) -> None:
        """Take no shard of a snapshot so far as a base any more: the rows are others."""
        self._interval = min(self._interval + 1, _MOST_INTERVALS)
        self._first = self._interval
        self._full.clear()

    def wrote(self, shard: str, interval: int) -> None:
        """Note a full shard of the snapshot before an interval. Any thread may call it."""
        if interval > self._first:
            self._full[shard] = interval
            for name in list(self._full)[:-_MOST_SHARDS]:
                self._full.pop(name, None)

    def keep_from(self, shard: str) -> None:
        """Forget the shards that were written before this one, which a published checkpoint names."""
        for name in list(self._full):
            if name == shard:
                return
            if shard in self._full:
                self._full.pop(name, None)

    def is_tracked(self, t: int) -> bool:
        """Whether changes of a saved part are noted; of what pruned tables have beside their rows they are not."""
        return t < len(self._sizes) and bool(self._sizes[t])
