"""The values with which rows get places: initial ones, and by the rules of rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.tables.engine import TableState
from trainer.tables.kernels.initial_rows import assign_rows
from trainer.tables.kernels.layout import FeatureLayout, TableLayout, TableOrigin, TableValues, table_layout
from trainer.tables.spec import TableSpec
from trainer.tables.state_checks import empty_state
from trainer.tables.stores.pruned.memory import PrunedMemory
from transforms.arrays import Array


class RowStarts:
    """The first values of rows of ``tables``.

    Args:
        tables: the tables.
        of_features: of their features.
        seed: what initial weights are drawn from.
        origins: of each table, the part of a whole table that it is; None for whole tables.
        memory: has the values that rows had when they left their places; None: none is kept.

    Attributes:
        layout: of the tables, whose values would begin at 0.
    """

    def __init__(
        self, tables: Sequence[TableSpec], of_features: FeatureLayout, seed: int, origins: Sequence[TableOrigin] | None,
        memory: PrunedMemory | None,
    ) -> None:  # fmt: skip
        self._tables = tuple(tables)
        none = np.zeros(len(self._tables), np.int64)
        whole = table_layout(of_features, tables, seed, origins)
        self.layout = whole._replace(row_base=none, weight_base=none, slot_base=none)
        self._left = None if memory is None else _LeftRows(whole, memory)

    def clear(self) -> None:
        """Forget what was kept."""
        if self._left is not None:
            self._left.clear()

    def initial(self, t: int, rows: Array) -> TableState:
        """The initial values of rows of a table."""
        dim, slots, count = int(self.layout.dims[t]), int(self.layout.slot_dims[t]), len(rows)
        counts = np.zeros(len(self._tables), np.int64)
        counts[t] = count
        values = TableValues(
            np.empty(count * dim, np.float32), np.empty(count * slots, np.float32), np.empty(count, np.uint8)
        )
        assign_rows(np.arange(count), rows, counts, self.layout, values)
        return TableState(rows, values.weights.reshape(count, dim), values.slots.reshape(count, slots))

    def after_round(self, t: int, rows: Array, rule: str) -> TableState | None:
        """The values of rows that get places of others, by a rule of :data:`~trainer.options.pruning.RESETS`; None: those of the others."""
        if not len(rows) or rule == "none":
            return None
        if rule == "zero":
            return self._zeros(t, rows)
        found = self.initial(t, rows)
        if self._left is not None:
            weights, slots, is_known = self._left.of_table(t)
            known = is_known[rows] != 0
            found.weights[known], found.slots[known] = weights[rows[known]], slots[rows[known]]
        return found

    def _zeros(self, t: int, rows: Array) -> TableState:
        """Weights of zero and initial slots, which are those of all rows of a table."""
        dim, slots, first = (int(one[t]) for one in (self.layout.dims, self.layout.slot_dims, self.layout.first_slot))
        own = self.layout.slot_start[first : first + slots].astype(np.float32)
        return TableState(rows, np.zeros((len(rows), dim), np.float32), np.tile(own, (len(rows), 1)))

    @property
    def keeps(self) -> bool:
        """Whether the values of rows that leave are kept, which the rule ``restored`` returns."""
        return self._left is not None

    def kept(self, t: int) -> TableState:
        """What was kept of a table."""
        if self._left is None:
            return empty_state(self._tables[t])
        weights, slots, is_known = self._left.of_table(t)
        rows = np.flatnonzero(is_known)
        return TableState(rows, weights[rows], slots[rows])

    def keep(self, t: int, leaving: TableState) -> None:
        """Keep the values of distinct rows that leave."""
        if self._left is not None:
            self._left.write(t, leaving)


class _LeftRows:
    """The values that rows had when they left their places, with memory for those of all rows."""

    def __init__(self, layout: TableLayout, memory: PrunedMemory) -> None:
        rows, dims, slot_dims = layout.vocabulary, layout.dims, layout.slot_dims
        self._bases = [np.concatenate([np.zeros(1, np.int64), np.cumsum(rows * one)]) for one in (dims, slot_dims, 1)]
        self._dims = [dims.tolist(), slot_dims.tolist()]
        sizes = [int(one[-1]) for one in self._bases]
        self._arrays = [
            memory.array("left_weights", sizes[0], np.float32),
            memory.array("left_slots", sizes[1], np.float32),
            memory.array("left_marks", sizes[2], np.uint8),
        ]

    def clear(self) -> None:
        for one in self._arrays:
            one.values[:] = 0

    def of_table(self, t: int) -> tuple[Array, Array, Array]:
        """The weights and slots of all rows of a table, and 1 for each row that has left."""
        weights, slots, marks = (
            one.values[int(base[t]) : int(base[t + 1])] for one, base in zip(self._arrays, self._bases, strict=True)
        )
        return weights.reshape(len(marks), self._dims[0][t]), slots.reshape(len(marks), self._dims[1][t]), marks

    def write(self, t: int, leaving: TableState) -> None:
        """Keep the values of rows of a table."""
        for array, base, dim in zip(self._arrays, self._bases, (self._dims[0][t], self._dims[1][t], 1), strict=True):
            array.keep(int(base[t]) + leaving.rows * dim, dim)
        weights, slots, marks = self.of_table(t)
        weights[leaving.rows], slots[leaving.rows], marks[leaving.rows] = leaving.weights, leaving.slots, 1
