"""The changed rows of an engine's tables at one moment, read while training goes on: copy on write.

Rows are captured in ranges, in order. Before training changes a row that is not captured yet, its values of the moment of the
snapshot are put aside, once a row. So a checkpoint needs the memory of the rows that are changed while it is written, at most
``most_bytes``, and not a copy of the tables; when that is used up, training waits until the snapshot is captured.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from trainer.embedding.cpu.aside import count_aside, put_aside
from trainer.embedding.cpu.gradients import CHANGED
from trainer.embedding.cpu.layout import Bags, TableLayout, TableValues
from trainer.embedding.engine import ChangedRows

Array = np.ndarray[Any, np.dtype[Any]]

#: Bytes of weights and slots that are captured at once, while training waits.
RANGE_BYTES = 4 << 20


def rows_of_range(row_floats: int, range_bytes: int) -> int:
    """The rows of a range, of so many weights and slot values each."""
    return max(range_bytes // (4 * row_floats), 1)


class _Aside(threading.Condition):
    """Rows that were put aside: their numbers over all tables, whether they were changed rows, and their values."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.is_aside = np.zeros(rows, np.uint8)  # one byte per row of all tables; the system commits what is written
        self.count = self.used = 0
        self.rows = np.zeros(0, np.int64)
        self.was_changed = np.zeros(0, np.uint8)
        self.places = np.zeros(0, np.int64)
        self.values = np.zeros(0, np.float32)

    def reserve(self, rows: int, floats: int) -> None:
        """Make space for more rows."""
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


class EngineSnapshot:
    """The changed rows of all tables of an engine at the moment of construction.

    ``counts``: the changed rows of each table, in the order of the layout. One thread calls :meth:`table`, table by table, or
    :meth:`capture`, while another one calls :meth:`put_aside` before each change.
    """

    def __init__(
        self,
        table_of: Array,
        layout: TableLayout,
        values: TableValues,
        *,
        most_bytes: int,
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        self._table_of, self._layout, self._values = table_of, layout, values
        self._most_bytes, self._range_bytes = most_bytes, range_bytes
        tables = range(len(layout.dims))
        self.counts = tuple(int(np.count_nonzero(self._states(t) == CHANGED)) for t in tables)
        self._captured = np.zeros(len(layout.dims), np.int64)  # the rows of each table below this one
        self._aside = _Aside(len(values.row_state))
        self._is_done = False

    @property
    def aside_bytes(self) -> int:
        """Bytes of the values that were put aside."""
        return 4 * self._aside.used

    @property
    def is_done(self) -> bool:
        """Whether all rows are captured, or the snapshot was closed."""
        return self._is_done

    def changing(self) -> threading.Condition:
        """Held while rows are put aside and changed."""
        return self._aside

    def put_aside(self, bags: Bags) -> None:
        """Put the rows of a batch aside that are not captured yet; inside :meth:`changing`."""
        aside, width = self._aside, int((self._layout.dims + self._layout.slot_dims).max())
        if not self._is_done and 4 * (aside.used + len(bags.ids) * width) > self._most_bytes:
            # An upper bound of what this batch may need: count it only when it seems too much.
            needed = count_aside(
                bags, self._table_of, self._layout, self._captured, aside.is_aside, self._values.row_state
            )
            if 4 * (aside.used + needed) > self._most_bytes:
                aside.wait_for(lambda: self._is_done)
        if self._is_done:
            return
        aside.reserve(len(bags.ids), len(bags.ids) * width)
        aside.count, aside.used = put_aside(
            bags, self._table_of, self._layout, self._values, self._captured, aside.is_aside, aside.rows, aside.was_changed,
            aside.places, aside.values, aside.count, aside.used,
        )  # fmt: skip

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, range by range; tables must be taken in order, each to its end."""
        return (part for part in self.ranges(t) if len(part.rows))

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

    def row_floats(self, t: int) -> int:
        """The weights and slot values of a row of a table."""
        return int(self._layout.dims[t]) + int(self._layout.slot_dims[t])

    def capture_rows(self, t: int, rows: Array) -> tuple[Array, Array]:
        """The weights and slots of distinct rows that were changed at the snapshot's moment, in any order; each row once.

        In place of :meth:`table` and :meth:`capture`, for rows that are read in another order than theirs; :meth:`close` ends the snapshot.
        """
        of, aside = self._layout, self._aside
        dim, slot_dim, base = int(of.dims[t]), int(of.slot_dims[t]), int(of.row_base[t])
        size = int(of.vocabulary[t])
        with aside:
            weights = self._part(self._values.weights, int(of.weight_base[t]), dim, 0, size)[rows]
            slots = self._part(self._values.slots, int(of.slot_base[t]), slot_dim, 0, size)[rows]
            kept = np.flatnonzero(aside.is_aside[base + rows])
            if len(kept):
                held = aside.rows[: aside.count]
                order = np.argsort(held)
                starts = aside.places[order[np.searchsorted(held, base + rows[kept], sorter=order)]]
                weights[kept] = aside.values[starts[:, None] + np.arange(dim)]
                slots[kept] = aside.values[starts[:, None] + dim + np.arange(slot_dim)]
            aside.is_aside[base + rows] = 1
        return weights, slots

    def skip(self, t: int) -> None:
        """Leave out a table that is not read."""
        with self._aside:
            self._set_captured(t, int(self._layout.vocabulary[t]))

    def _set_captured(self, t: int, stop: int) -> None:
        self._captured[t] = stop
        if (self._captured == self._layout.vocabulary).all():
            self.close()

    def _capture(self, t: int, first: int, stop: int) -> ChangedRows:
        of, aside = self._layout, self._aside
        slot_dim = int(of.slot_dims[t])
        dim, base = int(of.dims[t]), int(of.row_base[t])
        changed = self._states(t)[first:stop] == CHANGED
        put_aside = np.flatnonzero(
            (aside.rows[: aside.count] >= base + first) & (aside.rows[: aside.count] < base + stop)
        )
        places = aside.rows[put_aside] - base - first
        changed[places] = aside.was_changed[put_aside] != 0
        rows = np.flatnonzero(changed)
        weights = self._part(self._values.weights, int(of.weight_base[t]), dim, first, stop)[rows]
        slots = self._part(self._values.slots, int(of.slot_base[t]), slot_dim, first, stop)[rows]
        kept = aside.was_changed[put_aside] != 0
        at, starts = np.searchsorted(rows, places[kept]), aside.places[put_aside[kept]]
        weights[at] = aside.values[starts[:, None] + np.arange(dim)]
        slots[at] = aside.values[starts[:, None] + dim + np.arange(slot_dim)]
        return ChangedRows(rows + first, weights, slots)

    def _states(self, t: int) -> Array:
        base = int(self._layout.row_base[t])
        states: Array = self._values.row_state[base : base + int(self._layout.vocabulary[t])]
        return states

    @staticmethod
    def _part(values: Array, base: int, dim: int, first: int, stop: int) -> Array:
        part: Array = values[base + first * dim : base + stop * dim].reshape(stop - first, dim)
        return part

    def close(self) -> None:
        """End the snapshot: nothing is put aside any more. Training that waits goes on."""
        with self._aside:
            self._is_done = True
            self._aside.values = np.zeros(0, np.float32)
            self._aside.notify_all()
