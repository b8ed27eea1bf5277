"""The changed rows of an engine's tables at one moment, read while training goes on: copy on write.

Rows are captured in ranges, in order. Before training changes a row that is not captured yet, its values of the moment of the
snapshot are copied first, each once. So a checkpoint needs the memory of the rows that are changed while it is written, at most
``most_bytes``, and not a copy of the tables; when that is used up, training waits until the snapshot is captured.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from trainer.errors import BadBatch, DamagedMemory, MemoryFull, ServerLost
from trainer.tables.engine import NO_SNAPSHOT_SECTIONS, ChangedRows, SnapshotSections
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.aside import count_aside, find_aside, put_aside, read_aside
from trainer.tables.kernels.gradients import CHANGED
from trainer.tables.kernels.layout import Bags, TableLayout, TableValues
from trainer.tables.kernels.memory import TableMemory
from transforms.arrays import Array

#: Bytes of weights and slots that are captured at once, while training waits.
RANGE_BYTES = 4 << 20


#: The numbers of a kept snapshot: whether it is open, its memory, then the changed rows of each table and those that are captured.
_IS_OPEN, _MOST_BYTES, _NUMBERS = range(3)
_MOST_KEPT_BYTES = 1 << 40


def _kept(memory: TableMemory | None, layout: TableLayout, *, is_fresh: bool) -> Array:
    size = _NUMBERS + 2 * len(layout.dims)
    if memory is None:
        return np.zeros(size, np.int64)
    return memory.array("snapshot", np.zeros(1, np.int64), np.array([size]), np.int64, is_fresh=is_fresh)


def rows_of_range(row_floats: int, range_bytes: int) -> int:
    """The rows of a range, of so many weights and slot values each."""
    return max(range_bytes // (4 * row_floats), 1)


def _space_bytes(layout: TableLayout, most_bytes: int) -> int:
    """The bytes for copies of changed rows: at most the bytes of all rows, whatever was asked for."""
    return min(most_bytes, 4 * int((layout.vocabulary * (layout.dims + layout.slot_dims)).sum()))


class _Aside(threading.Condition):
    """Rows that were copied before a change: their numbers over all tables, whether they were changed rows, and their values.

    ``memory``: keeps them beyond the end of the process, in space for ``most_bytes`` of values, which is reserved as it is needed;
    None: memory of this process.
    """

    def __init__(self, rows: int, memory: TableMemory | None, most_bytes: int, *, is_fresh: bool = True) -> None:
        super().__init__()
        self._memory = memory
        entries, floats = (min(rows, most_bytes // 4), most_bytes // 4) if memory is not None else (0, 0)

        def array(name: str, size: int, dtype: type, *, fresh: bool = is_fresh, grows: bool = True) -> Array:
            if memory is None:
                return np.zeros(size, dtype)  # the system commits what is written
            one = np.array([size])
            return memory.array(_file(name), np.zeros(1, np.int64), one, dtype, is_fresh=fresh, is_reserved=not grows)

        self.is_aside = array("marks", rows, np.uint8, fresh=True, grows=False)  # one byte per row of all tables
        self.rows, self.places = array("rows", entries, np.int64), array("places", entries, np.int64)
        self.was_changed = array("was_changed", entries, np.uint8)
        self.values = array("values", floats, np.float32)
        self._ends = array("ends", 2, np.int64, grows=False)
        self._check()
        self.is_aside[self.rows[: self.count]] = 1

    def _check(self) -> None:
        """Raise :class:`DamagedMemory` for kept rows that this class has not written."""
        count, used = self.count, self.used
        is_damaged = not (0 <= count <= len(self.rows) and 0 <= used <= len(self.values))
        if is_damaged or (self.rows[:count] < 0).any() or (self.rows[:count] >= len(self.is_aside)).any():
            raise DamagedMemory("the snapshot of tables in shared memory must be one that this release wrote", value=(count, used),
                                next_step="remove the folder of the memory, and restore the tables from a commit")  # fmt: skip

    @property
    def count(self) -> int:
        """The rows."""
        return int(self._ends[0])

    @property
    def used(self) -> int:
        """The floats of their values."""
        return int(self._ends[1])

    def extend(self, count: int, used: int) -> None:
        """Take rows that were written after the last one."""
        self._ends[1] = used
        self._ends[0] = count

    def has_space(self, rows: int) -> bool:
        """Whether so many more rows can be noted; no row is noted twice."""
        is_kept = self._memory is not None
        return not is_kept or len(self.rows) == len(self.is_aside) or self.count + rows <= len(self.rows)

    def reserve(self, rows: int, floats: int) -> bool:
        """Reserve space for more rows; whether the memory has it."""
        if self._memory is None:
            self._grow(rows, floats)
            return True
        entries, values = min(self.count + rows, len(self.rows)), min(self.used + floats, len(self.values))
        try:
            for name, array, items in (("rows", self.rows, entries), ("places", self.places, entries),
                                       ("was_changed", self.was_changed, entries), ("values", self.values, values)):  # fmt: skip
                if items:
                    self._memory.reserve(_file(name), items * array.itemsize)
        except MemoryFull:
            return False
        return True

    def _grow(self, rows: int, floats: int) -> None:
        """Make space in the memory of this process."""
        if self.count + rows > len(self.rows):
            size = 2 * (self.count + rows)
            self.rows, self.was_changed, self.places = (
                np.resize(array[: self.count] if self.count else np.zeros(1, array.dtype), size)
                for array in (self.rows, self.was_changed, self.places)
            )
        if self.used + floats > len(self.values):
            grown = np.empty(2 * (self.used + floats), np.float32)
            grown[: self.used] = self.values[: self.used]
            self.values = grown


def _file(name: str) -> str:
    """The name of an array of copied rows, in a memory."""
    return f"aside_{name}"


class EngineSnapshot:
    """The changed rows of all tables of an engine at the moment of construction.

    ``counts``: the changed rows of each table, in the order of the layout. One thread calls :meth:`table`, table by table, or
    :meth:`capture`, while another one calls :meth:`put_aside` before each change.

    Args:
        layout: of the tables.
        values: of the tables.
        most_bytes: memory for copies of rows that change.
        range_bytes: bytes of rows that are captured at once.
        memory: keeps the snapshot beyond the end of the process, for :meth:`resume`; None: it ends with it.
        patience_secs: a snapshot for which training has waited for so long is closed; None: it waits.
    """

    def __init__(
        self,
        layout: TableLayout,
        values: TableValues,
        *,
        most_bytes: int,
        range_bytes: int = RANGE_BYTES,
        memory: TableMemory | None = None,
        patience_secs: float | None = None,
    ) -> None:
        self._begin(layout, values, range_bytes, patience_secs, _kept(memory, layout, is_fresh=True))
        self._set_counts([int(np.count_nonzero(self._states(t) == CHANGED)) for t in range(len(layout.dims))])
        self._most_bytes = most_bytes
        self._aside = _Aside(len(values.row_state), memory, _space_bytes(layout, most_bytes))
        self._state[_MOST_BYTES], self._state[_IS_OPEN] = most_bytes, 1

    @classmethod
    def resume(
        cls, layout: TableLayout, values: TableValues, memory: TableMemory, *, patience_secs: float | None = None
    ) -> EngineSnapshot | None:  # fmt: skip
        """The snapshot in a memory that an earlier process has begun there; None if there is none.

        Raises :class:`DamagedMemory` for one with other bytes than were written.
        """
        state = _kept(memory, layout, is_fresh=False)
        if state[_IS_OPEN] != 1:
            return None
        found = cls.__new__(cls)
        found._begin(layout, values, RANGE_BYTES, patience_secs, state)
        found._most_bytes = min(max(int(state[_MOST_BYTES]), 0), _MOST_KEPT_BYTES)
        found._set_counts(state[_NUMBERS : _NUMBERS + len(layout.dims)].tolist())
        found._captured[:] = np.clip(found._captured, 0, layout.vocabulary)
        space_bytes = _space_bytes(layout, found._most_bytes)
        found._aside = _Aside(len(values.row_state), memory, space_bytes, is_fresh=False)
        return found

    def _begin(
        self, layout: TableLayout, values: TableValues, range_bytes: int, patience_secs: float | None, state: Array
    ) -> None:  # fmt: skip
        self._layout, self._values = layout, values
        self._range_bytes, self._patience_secs, self._state = range_bytes, patience_secs, state
        self._captured = state[_NUMBERS + len(layout.dims) :]  # the rows of each table below this one
        self._is_done = False

    def _set_counts(self, counts: list[int]) -> None:
        self.counts = tuple(counts)
        self._state[_NUMBERS : _NUMBERS + len(counts)] = counts

    @property
    def aside_bytes(self) -> int:
        """Bytes of the values that were copied."""
        return 4 * self._aside.used

    @property
    def is_done(self) -> bool:
        """Whether all rows are captured, or the snapshot was closed."""
        return self._is_done

    def changing(self) -> threading.Condition:
        """The lock that is held while rows are copied and changed."""
        return self._aside

    def put_aside(self, bags: Bags, table_of: Array) -> None:
        """Copy rows that the snapshot has not read before a batch changes them; inside :meth:`changing`.

        ``table_of``: the table of each feature of the batch.
        """
        aside = self._aside
        has_space = self._is_done or self._make_space(bags, table_of)
        if not has_space and not aside.wait_for(lambda: self._is_done, self._patience_secs):
            self.close()  # its reader is gone
        if self._is_done:
            return
        aside.extend(*put_aside(
            bags, table_of, self._layout, self._values, self._captured, aside.is_aside, aside.rows, aside.was_changed,
            aside.places, aside.values, aside.count, aside.used,
        ))  # fmt: skip

    def _make_space(self, bags: Bags, table_of: Array) -> bool:
        """Make space for the rows of a batch that are not captured yet; whether there is some."""
        aside, rows = self._aside, len(bags.ids)
        if not aside.has_space(rows):  # rows without changes are noted, too
            return False
        most = rows * int((self._layout.dims + self._layout.slot_dims).max())
        if 4 * (aside.used + most) <= self._most_bytes and aside.reserve(rows, most):
            return True
        # An upper bound of what this batch may need: it is counted only when that seems too much.
        needed = count_aside(bags, table_of, self._layout, self._captured, aside.is_aside, self._values.row_state)
        return 4 * (aside.used + needed) <= self._most_bytes and aside.reserve(rows, needed)

    @property
    def sizes(self) -> Array:
        """The rows of each table, int64."""
        return self._layout.vocabulary

    def ages(self, t: int, first: int, stop: int) -> None:
        """See :class:`~trainer.tables.stores.row_store.KeptSnapshot`: rows of these tables have no ages."""

    def history(self, t: int) -> KeptHistory:
        """See :class:`~trainer.tables.stores.row_store.KeptSnapshot`. Raises :class:`BadBatch`."""
        raise BadBatch("only a hashed table has a history", value=t)

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, range by range; tables must be taken in order, each to its end."""
        return (part for part in self.ranges(t) if len(part.rows))

    def sections(self, t: int) -> SnapshotSections:
        """See :meth:`TablesSnapshot.sections <trainer.tables.engine.TablesSnapshot.sections>`: none."""
        return NO_SNAPSHOT_SECTIONS

    def ranges(self, t: int) -> Iterator[ChangedRows]:
        """As :meth:`table`, with a part for every range of the table's rows, also for those without changes."""
        of = self._layout
        step = rows_of_range(int(of.dims[t]) + int(of.slot_dims[t]), self._range_bytes)
        for first in range(0, int(of.vocabulary[t]), step):
            yield self.capture(t, first, min(first + step, int(of.vocabulary[t])))

    def capture(self, t: int, first: int, stop: int) -> ChangedRows:
        """The changed rows of a table from ``first``, where the last call for this table has stopped, to ``stop``.

        The snapshot ends with the last row of all tables.
        """
        with self._aside:
            found = self._capture(t, first, stop)
            self._set_captured(t, stop)
        return found

    def noted(self, t: int, first: int, stop: int) -> None:
        """See :class:`~trainer.tables.stores.row_store.KeptSnapshot`: changes are noted by the rows of a range."""

    def absent(self, t: int, rows: Array) -> Array:
        """See :class:`~trainer.tables.stores.row_store.KeptSnapshot`. Raises :class:`BadBatch`: a changed row stays one."""
        raise BadBatch("only a hashed or pruned table loses rows", value=t)

    def read(self, t: int, first: int, stop: int, chosen: Array | None = None) -> ChangedRows:
        """As :meth:`capture`, but the rows may be read again until :meth:`leave` is called; ``chosen`` is None.

        Raises :class:`ServerLost` for a snapshot that another thread has closed.
        """
        with self._aside:
            self._check_open()
            return self._capture(t, first, stop)

    def leave(self, t: int, stop: int) -> None:
        """Keep the rows of a table below ``stop`` no longer."""
        with self._aside:
            self._captured[t] = stop

    def size(self, t: int) -> int:
        """The rows of a table."""
        return int(self._layout.vocabulary[t])

    def changed_places(self, t: int) -> Array:
        """The rows of a table that training has changed until now."""
        found: Array = np.flatnonzero(self._states(t) == CHANGED)
        return found

    def row_floats(self, t: int) -> int:
        """The weights and slot values of a row of a table."""
        return int(self._layout.dims[t]) + int(self._layout.slot_dims[t])

    def capture_rows(self, t: int, rows: Array) -> tuple[Array, Array]:
        """The weights and slots of distinct rows that were changed at the snapshot's moment, in any order; each row once.

        In place of :meth:`table` and :meth:`capture`, for rows that are read in another order than theirs; :meth:`close` ends the snapshot.
        """
        with self._aside:
            found = self.read_some(t, rows)
            self.leave_some(t, rows)
        return found

    def read_some(self, t: int, rows: Array) -> tuple[Array, Array]:
        """As :meth:`capture_rows`, but the rows may be read again until :meth:`leave_some` is called.

        Raises :class:`ServerLost` for a snapshot that another thread has closed.
        """
        of, aside = self._layout, self._aside
        dim, slot_dim, base = int(of.dims[t]), int(of.slot_dims[t]), int(of.row_base[t])
        size = int(of.vocabulary[t])
        with aside:
            if len(rows):  # the snapshot ends with its last row: what is left then is nothing
                self._check_open()
            weights = self._part(self._values.weights, int(of.weight_base[t]), dim, 0, size).take(rows, axis=0)
            slots = self._part(self._values.slots, int(of.slot_base[t]), slot_dim, 0, size).take(rows, axis=0)
            kept = np.flatnonzero(aside.is_aside[base + rows])
            if len(kept):
                held = aside.rows[: aside.count]
                order = np.argsort(held)
                starts = aside.places[order[np.searchsorted(held, base + rows[kept], sorter=order)]]
                self._read_aside(starts, kept, weights, slots)
        return weights, slots

    def leave_some(self, t: int, rows: Array) -> None:
        """Keep these rows of a table no longer."""
        with self._aside:
            self._aside.is_aside[int(self._layout.row_base[t]) + rows] = 1

    def skip(self, t: int) -> None:
        """Leave out a table that is not read."""
        with self._aside:
            self._set_captured(t, int(self._layout.vocabulary[t]))

    def _check_open(self) -> None:
        if self._is_done:
            raise ServerLost("a snapshot must be read before it ends")

    def _set_captured(self, t: int, stop: int) -> None:
        self._captured[t] = stop
        if (self._captured == self._layout.vocabulary).all():
            self.close()

    def _capture(self, t: int, first: int, stop: int) -> ChangedRows:
        of, aside = self._layout, self._aside
        slot_dim = int(of.slot_dims[t])
        dim, base = int(of.dims[t]), int(of.row_base[t])
        changed = self._states(t)[first:stop] == CHANGED
        put_aside = find_aside(aside.rows, aside.count, aside.is_aside, base + first, base + stop)
        places = aside.rows[put_aside] - base - first
        changed[places] = aside.was_changed[put_aside] != 0
        rows = np.flatnonzero(changed)
        weights = self._part(self._values.weights, int(of.weight_base[t]), dim, first, stop).take(rows, axis=0)
        slots = self._part(self._values.slots, int(of.slot_base[t]), slot_dim, first, stop).take(rows, axis=0)
        kept = aside.was_changed[put_aside] != 0
        self._read_aside(aside.places[put_aside[kept]], np.searchsorted(rows, places[kept]), weights, slots)
        return ChangedRows(rows + first, weights, slots)

    def _read_aside(self, starts: Array, at: Array, weights: Array, slots: Array) -> None:
        """Write kept values as the rows ``at``. Raises :class:`ServerLost` for a snapshot that another thread has closed."""
        if not len(starts):
            return
        last = len(self._aside.values) - weights.shape[1] - slots.shape[1]
        if not 0 <= int(starts.min()) <= int(starts.max()) <= last:
            raise ServerLost("a snapshot must be read before it ends")
        read_aside(starts, at, self._aside.values, weights, slots)

    def _states(self, t: int) -> Array:
        base = int(self._layout.row_base[t])
        states: Array = self._values.row_state[base : base + int(self._layout.vocabulary[t])]
        return states

    @staticmethod
    def _part(values: Array, base: int, dim: int, first: int, stop: int) -> Array:
        part: Array = values[base + first * dim : base + stop * dim].reshape(stop - first, dim)
        return part

    def close(self) -> None:
        """End the snapshot: rows are not copied any more. Training that waits continues."""
        with self._aside:
            self._is_done = True
            self._state[_IS_OPEN] = 0
            self._aside.values = np.zeros(0, np.float32)
            self._aside.notify_all()
