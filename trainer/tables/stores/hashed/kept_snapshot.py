"""The changed rows of one moment of tables some of which are hashed, in a memory that outlives the process.

A table that is not hashed is read by ranges of its rows. A hashed one is read by ranges of the *ranks* of its rows: 0 is that of the
smallest id. Ids, ages and the counts of candidates are copied at the beginning, 24 bytes per row; values are kept by the snapshot of places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trainer.errors import DamagedMemory, ServerLost
from trainer.tables.engine import ChangedRows
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.memory import TableMemory
from trainer.tables.stores.dense.snapshot import EngineSnapshot
from trainer.tables.stores.hashed import index_layout as columns
from trainer.tables.stores.hashed.index import PlaceIndex
from trainer.tables.stores.sorted_rows import without_rows
from transforms.arrays import Array

_STEP, _CANDIDATES, _NUMBERS = range(3)


class MixedSnapshot:
    """See :class:`~trainer.tables.stores.dense.snapshot.EngineSnapshot`, whose calls it has, for tables some of which are hashed.

    Args:
        rows: the snapshot of the engine that has all values.
        memory: keeps the ids.
        sizes: the rows of each table.
        numbers: of each hashed table by its position, its number in the index.
        index: of a snapshot that begins; None: it was begun by an earlier process, and the memory has its ids.
        candidates: those of a hashed table by its number.
    """

    def __init__(
        self, rows: EngineSnapshot, memory: TableMemory, sizes: Sequence[int], numbers: Mapping[int, int],
        index: PlaceIndex | None = None, candidates: Callable[[int], Array] = lambda number: np.zeros(0, np.uint64),
    ) -> None:  # fmt: skip
        self._rows, self._memory = rows, memory
        self.sizes = np.array([rows.counts[t] if t in numbers else size for t, size in enumerate(sizes)], np.int64)
        self._left = np.zeros(len(sizes), np.int64)
        self._ids: dict[int, Array] = {}
        self._places: dict[int, Array] = {}
        self._ages: dict[int, Array] = {}
        self._histories: dict[int, KeptHistory] = {}
        for t, number in numbers.items():
            self._take(t, number, index, candidates)

    def _take(self, t: int, k: int, index: PlaceIndex | None, candidates: Callable[[int], Array]) -> None:
        """Copy the ids of a table, or take those that the memory has."""
        count, is_fresh = self._rows.counts[t], index is not None
        own = candidates(k)
        numbers = self._array(f"numbers_{t}", _NUMBERS, np.int64, is_fresh=is_fresh)
        if is_fresh:
            numbers[_CANDIDATES] = len(own)
        if not 0 <= numbers[_CANDIDATES] < 1 << 34:
            raise _damaged(t)
        ids, places, ages = (
            self._array(f"{name}_{t}", count, np.int64, is_fresh=is_fresh) for name in ("ids", "places", "ages")
        )
        kept = self._array(f"candidates_{t}", int(numbers[_CANDIDATES]), np.uint64, is_fresh=is_fresh)
        if index is not None:
            changed = self._rows.changed_places(t)
            found = index.ids_of(k, changed)
            order = np.argsort(found)
            ids[:], places[:] = found[order], changed[order]
            numbers[_STEP] = index.words[k, columns.STEP]
            ages[:] = numbers[_STEP] - index.records(k)[places, columns.USE].astype(np.int64)
            kept[:] = own
        elif count and not (places.min() >= 0 and places.max() < self._rows.size(t) and (ids[1:] > ids[:-1]).all()):
            raise _damaged(t)
        self._ids[t], self._places[t], self._ages[t] = ids, places, ages
        self._histories[t] = KeptHistory(int(numbers[_STEP]), kept)

    def _array(self, name: str, size: int, dtype: type, *, is_fresh: bool) -> Array:
        one = np.zeros(1, np.int64)
        return self._memory.array(f"snapshot_{name}", one, one + size, dtype, is_fresh=is_fresh)

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table."""
        return self._rows.counts

    @property
    def is_done(self) -> bool:
        """Whether it was closed."""
        return self._rows.is_done

    def history(self, t: int) -> KeptHistory:
        """What a hashed table had beside its rows."""
        return self._histories[t]

    def ages(self, t: int, first: int, stop: int) -> Array | None:
        """The ages of the rows of these ranks of a hashed table; None for another table."""
        return self._ages[t][first:stop] if t in self._ages else None

    def noted(self, t: int, first: int, stop: int) -> Array | None:
        """The places of the rows of these ranks of a hashed table; None for another table."""
        return self._places[t][first:stop] if t in self._places else None

    def absent(self, t: int, rows: Array) -> Array:
        """Those of some ascending ids of a hashed table that had no row."""
        return without_rows(rows, self._ids[t])

    def read(self, t: int, first: int, stop: int, chosen: Array | None = None) -> ChangedRows:
        """The changed rows of a range of rows, or of ranks; they may be read again until :meth:`leave` is called.

        ``chosen``: a mask over the ranks of a hashed table; None: all.

        Raises :class:`ServerLost` for ranks that were left.
        """
        if t not in self._ids:
            return self._rows.read(t, first, stop, chosen)
        if first < self._left[t]:
            raise ServerLost(
                "rows of a snapshot must be read in their order", value=first, allowed=f">= {self._left[t]}"
            )
        ids, places = self._ids[t][first:stop], self._places[t][first:stop]
        if chosen is not None:
            ids, places = ids[chosen], places[chosen]
        weights, slots = self._rows.read_some(t, places)
        return ChangedRows(ids, weights, slots)

    def leave(self, t: int, stop: int) -> None:
        """Keep the rows of a table below ``stop``, a row or a rank, no longer."""
        if t not in self._ids:
            self._rows.leave(t, stop)
        elif stop > self._left[t]:
            self._rows.leave_some(t, self._places[t][self._left[t] : stop])
            self._left[t] = stop

    def close(self) -> None:
        """End the snapshot: training that waits for it goes on."""
        self._rows.close()


def _damaged(t: int) -> DamagedMemory:
    return DamagedMemory("the ids of a snapshot in shared memory must be those that were written", where=f"table {t}",
                         next_step="remove the folder of the memory, and restore the tables from a commit")  # fmt: skip
