"""The rows of pruned tables that have places at one moment, in a memory that outlives the process.

Their numbers and places, the importance of all rows, and the values of rows that have left are copied at the beginning; the values of places
are kept by a snapshot of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.errors import DamagedMemory, ServerLost
from trainer.tables.engine import ChangedRows, TableState
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.memory import TableMemory
from trainer.tables.stores.dense.snapshot import EngineSnapshot
from trainer.tables.stores.pruned.history import NUMBER_WORDS
from trainer.tables.stores.pruned.saved_parts import SavedPart
from trainer.tables.stores.sorted_rows import without_rows
from transforms.arrays import Array

#: The numbers of a snapshot: whether all is copied, the step and the other numbers of all tables, then the rows of each part.
_IS_READY, _STEP, _NUMBERS, _COUNTS = 0, 1, 2, 2 + NUMBER_WORDS


class PrunedSnapshot:
    """See :class:`~trainer.tables.stores.row_store.KeptSnapshot`. It is read by ranges of the rows of each of ``parts``.

    Args:
        places: the snapshot of the places of groups.
        memory: keeps what is copied.
        parts: what is saved, in its order.
        group_of: the group of each table.
        history: what all tables have beside their rows; None: the memory has it, as an earlier process has begun the snapshot.
        found: of each part its rows and, of a table, their places; of a section its values. None as before.
    """

    def __init__(
        self, places: EngineSnapshot, memory: TableMemory, parts: Sequence[SavedPart], group_of: Array, history: KeptHistory | None = None,
        found: Sequence[tuple[Array, TableState | Array]] | None = None,
    ) -> None:  # fmt: skip
        self._places, self._parts, self._group_of, self._memory = places, parts, group_of, memory
        self.sizes = np.array([one.rows for one in parts], np.int64)
        self._left = np.zeros(len(parts), np.int64)
        self._left_rows = np.zeros(len(parts), np.int64)
        head = _head(memory, parts, is_fresh=False)
        if found is not None and history is not None:
            head[_STEP], head[_NUMBERS:_COUNTS] = history.step, history.candidates.view(np.int64)
            head[_COUNTS:] = [len(rows) for rows, _ in found]
        self._history = KeptHistory(int(head[_STEP]), head[_NUMBERS:_COUNTS].view(np.uint64).copy())
        self._rows: list[Array] = []
        self._values: list[tuple[Array, ...]] = []
        for p, count in enumerate(head[_COUNTS:].tolist()):
            self._take(p, count, None if found is None else found[p])
        self.counts = tuple(map(len, self._rows))
        head[_IS_READY] = 1

    @staticmethod
    def clear(memory: TableMemory, parts: Sequence[SavedPart]) -> None:
        """Forget what the memory has of an earlier snapshot, before the places of another one are kept."""
        _head(memory, parts, is_fresh=True)

    @classmethod
    def resume(
        cls, places: EngineSnapshot, memory: TableMemory, parts: Sequence[SavedPart], group_of: Array
    ) -> PrunedSnapshot | None:
        """The snapshot that an earlier process has begun; None if it was killed before it had copied all."""
        if _head(memory, parts, is_fresh=False)[_IS_READY] != 1:
            places.close()
            return None
        return cls(places, memory, parts, group_of)

    def _take(self, p: int, count: int, found: tuple[Array, TableState | Array] | None) -> None:
        """Copy the rows of a part, or take those that the memory has."""
        part, is_fresh = self._parts[p], found is not None
        if not 0 <= count <= part.rows:
            raise _damaged(part)
        rows = self._array(f"rows_{p}", count, np.int64, is_fresh=is_fresh)
        if part.section:
            values = tuple(self._array(f"{name}_{p}", count * dim, np.float32, is_fresh=is_fresh).reshape(count, dim)
                           for name, dim in (("weights", part.dim), ("slots", part.slot_dim)))  # fmt: skip
        else:
            values = (self._array(f"places_{p}", count, np.int64, is_fresh=is_fresh),)
        if found is not None:
            rows[:], own = found
            sources = (own.weights, own.slots) if isinstance(own, TableState) else (own,)
            for target, source in zip(values, sources, strict=True):
                target[:] = source
        elif count and not (rows[0] >= 0 and rows[-1] < part.rows and (rows[1:] > rows[:-1]).all()):
            raise _damaged(part)
        elif count and not part.section:
            most = self._places.size(int(self._group_of[part.table]))
            if not (values[0].min() >= 0 and values[0].max() < most):
                raise _damaged(part)
        self._rows.append(rows)
        self._values.append(values)

    def _array(self, name: str, size: int, dtype: type, *, is_fresh: bool) -> Array:
        one = np.zeros(1, np.int64)
        return self._memory.array(f"snapshot_{name}", one, one + size, dtype, is_fresh=is_fresh)

    @property
    def is_done(self) -> bool:
        """Whether it was closed."""
        return self._places.is_done

    def noted(self, t: int, first: int, stop: int) -> Array:
        """The rows of a part from ``first`` to ``stop``."""
        found: Array = self._rows[t][self._between(t, first, stop)]
        return found

    def absent(self, t: int, rows: Array) -> Array:
        """Those of some ascending rows that a part had not."""
        return without_rows(rows, self._rows[t])

    def _between(self, t: int, first: int, stop: int) -> slice:
        return slice(*np.searchsorted(self._rows[t], [first, stop]).tolist())

    def read(self, t: int, first: int, stop: int, chosen: Array | None = None) -> ChangedRows:
        """The rows of a part from ``first`` to ``stop``; they may be read again until :meth:`leave` is called.

        ``chosen``: a mask over these rows; None: all.

        Raises :class:`ServerLost` for rows that were left.
        """
        if first < self._left_rows[t]:
            raise ServerLost(
                "rows of a snapshot must be read in their order", value=first, allowed=f">= {self._left_rows[t]}"
            )
        own = self._between(t, first, stop)
        rows, values = self._rows[t][own], [one[own] for one in self._values[t]]
        if chosen is not None:
            rows, values = rows[chosen], [one[chosen] for one in values]
        weights, slots = values if self._parts[t].section else self._places.read_some(self._group(t), values[0])
        return ChangedRows(rows, weights, slots)

    def leave(self, t: int, stop: int) -> None:
        """Keep the rows of a part below ``stop`` no longer."""
        end = int(np.searchsorted(self._rows[t], stop))
        if end > self._left[t]:
            if not self._parts[t].section:
                self._places.leave_some(self._group(t), self._values[t][0][self._left[t] : end])
            self._left[t] = end
        self._left_rows[t] = max(int(self._left_rows[t]), stop)

    def _group(self, t: int) -> int:
        return int(self._group_of[self._parts[t].table])

    def ages(self, t: int, first: int, stop: int) -> None:
        """See :class:`~trainer.tables.stores.row_store.KeptSnapshot`: rows of these tables have no ages."""

    def history(self, t: int) -> KeptHistory:
        """The numbers of all tables."""
        return self._history

    def close(self) -> None:
        """End the snapshot: training that waits for it goes on."""
        self._places.close()


def _head(memory: TableMemory, parts: Sequence[SavedPart], *, is_fresh: bool) -> Array:
    size = np.array([_COUNTS + len(parts)])
    return memory.array("snapshot_pruned", np.zeros(1, np.int64), size, np.int64, is_fresh=is_fresh)


def _damaged(part: SavedPart) -> DamagedMemory:
    return DamagedMemory("the rows of a snapshot in shared memory must be those that were written", where=f"table {part.table}",
                         next_step="remove the folder of the memory, and restore the tables from a commit")  # fmt: skip
