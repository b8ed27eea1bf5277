"""Which rows of a server were changed since it wrote a full shard, so that the next shards have those rows alone.

Each row has the number of the interval between two snapshots in which it was changed last; a row of a hashed table has it by its place, and so has
each line of its candidates. Ids and rows that have lost their place are listed. So any full shard that was written at the end of an interval may be the base of later ones. All of
this is in the memory of the process: after a restart of it the next shard is full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainer.tables.kernels.noted_intervals import note_numbers, note_rows
from trainer.tables.stores.step_changes import NO_MORE_CHANGES, StepChanges
from transforms.arrays import Array

#: Full shards that may become a base: one that is published, and those that were written since.
_MOST_SHARDS = 4
_MOST_INTERVALS = np.iinfo(np.uint16).max
#: So many removed rows are listed, by the rows that are noted; after more of them the next shard is full.
_MOST_REMOVED = 0.5
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRowsOf:
    """Which rows were changed between a full shard and a snapshot, a bit for each row, or for each place of a hashed table.

    Attributes:
        starts: where the bits of each table begin, then those of lines of candidates, and where the last ones end.
        bits: uint8, eight rows each, the first one lowest.
        removed: by the position of a table, the ids or rows that have lost their place, in pieces; they may have one again.
        lines_at: by the position of a hashed table with candidates, which of ``starts`` is that of its lines.
    """

    starts: Array
    bits: Array
    removed: Mapping[int, Sequence[Array]] = field(default_factory=dict)
    lines_at: Mapping[int, int] = field(default_factory=dict)

    def of_range(self, t: int, first: int, stop: int) -> Array:
        """Whether the rows of a table from ``first`` to ``stop`` were changed."""
        at = int(self.starts[t]) + first
        found = np.unpackbits(self.bits[at // 8 : -(-(at + stop - first) // 8)], bitorder="little")
        changed: Array = found[at % 8 : at % 8 + stop - first].view(bool)
        return changed

    def among(self, t: int, numbers: Array) -> Array:
        """Whether some rows, or places, of a table were changed."""
        at = int(self.starts[t]) + numbers
        changed: Array = ((self.bits[at >> 3] >> (at & 7).astype(np.uint8)) & 1).view(bool)
        return changed

    def count(self, t: int) -> int:
        """The changed rows of a table."""
        size, step = int(self.starts[t + 1] - self.starts[t]), 1 << 24
        return sum(int(self.of_range(t, at, min(at + step, size)).sum()) for at in range(0, size, step))

    def removed_rows(self, t: int) -> Array:
        """The distinct ids or rows of a table that have lost their place, int64 and ascending; they may have one again."""
        found: Array = np.unique(np.concatenate([_NONE, *self.removed.get(t, ())]))
        return found

    def lines(self, t: int) -> Array:
        """The lines of candidates of a hashed table that were changed, int64 and ascending."""
        if (at := self.lines_at.get(t)) is None:
            return _NONE
        found: Array = np.flatnonzero(self.of_range(at, 0, int(self.starts[at + 1] - self.starts[at])))
        return found


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
        sizes: the rows of each table; of a hashed one its places.
        lines: of each hashed table by its position, the lines of its candidates.
    """

    def __init__(self, sizes: Sequence[int], lines: Mapping[int, int] | None = None) -> None:
        of_hashed = lines or {}
        self._is_by_row = np.array([t not in of_hashed for t in range(len(sizes))], bool)
        self._lines_at = {t: len(sizes) + k for k, t in enumerate(of_hashed)}
        self._starts = np.concatenate([[0], np.cumsum([*sizes, *of_hashed.values()], dtype=np.int64)])
        self._rows = sum(sizes)
        self._intervals = np.zeros(int(self._starts[-1]), np.uint16)  # the system commits what is written
        self._interval = self._first = 1
        self._full: dict[str, int] = {}
        self._removed: list[tuple[int, int, Array]] = []
        self._removed_rows, self._listed_from = 0, 0

    def note(self, rows: Array, counts: Array) -> None:
        """Note rows, table after table, that have just changed; those of hashed tables are left out."""
        note_rows(rows, counts, self._starts, self._is_by_row, self._interval, self._intervals)

    def note_more(self, changes: StepChanges) -> None:
        """Note what an update has changed beside its rows."""
        if changes is NO_MORE_CHANGES:
            return
        for t, one in changes.tables.items():
            note_numbers(one.numbers, self._starts[t], self._interval, self._intervals)
            if len(one.lines):
                note_numbers(one.lines, self._starts[self._lines_at[t]], self._interval, self._intervals)
            if len(one.removed) and self._interval > self._first:  # before the first snapshot no shard is a base
                self._removed.append((self._interval, t, one.removed))
                self._removed_rows += len(one.removed)
        if changes.is_all or self._removed_rows > _MOST_REMOVED * self._rows:
            self.forget()

    def begin(self) -> SnapshotInterval:
        """Begin the interval after a snapshot."""
        if self._interval == _MOST_INTERVALS:
            self._intervals[:] = 0
            self._interval = 0
            self.forget()
        self._interval += 1
        full = list(self._full.items())
        if full:
            self._leave_removed(min(number for _, number in full))
        since = {name: self._since(number) for name, number in full}
        return SnapshotInterval(self._interval, since)

    def _since(self, number: int) -> ChangedRowsOf:
        removed: dict[int, list[Array]] = {}
        for interval, t, rows in self._removed:
            if interval >= number:
                removed.setdefault(t, []).append(rows)
        bits = np.packbits(self._intervals >= number, bitorder="little")
        return ChangedRowsOf(self._starts, bits, removed, self._lines_at)

    def _leave_removed(self, interval: int) -> None:
        """List no rows any more that were removed before an interval: that of the oldest base."""
        self._removed = [one for one in self._removed if one[0] >= interval]
        self._removed_rows = sum(len(rows) for _, _, rows in self._removed)
        self._listed_from = interval

    def forget(self) -> None:
        """Take no shard of a snapshot so far as a base any more: the rows are others."""
        self._interval = min(self._interval + 1, _MOST_INTERVALS)
        self._first = self._interval
        self._full.clear()
        self._leave_removed(self._interval)

    def wrote(self, shard: str, interval: int) -> None:
        """Note a full shard of the snapshot before an interval. Any thread may call it."""
        if interval > self._first and interval >= self._listed_from:
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
