"""The values with which rows get places: initial ones, and by the rules of rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.embedding.cpu.initial_rows import assign_rows
from trainer.embedding.cpu.layout import FeatureLayout, TableOrigin, TableValues, table_layout
from trainer.embedding.engine import TableState
from trainer.embedding.spec import TableSpec
from trainer.embedding.state_checks import empty_state
from transforms.arrays import Array


class RowStarts:
    """The first values of rows of ``tables``.

    ``seed``: what initial weights are drawn from; ``origins``: of each table, the part of a whole table that it is; None for whole tables.
    """

    def __init__(
        self, tables: Sequence[TableSpec], of_features: FeatureLayout, seed: int, origins: Sequence[TableOrigin] | None
    ) -> None:
        self._tables = tuple(tables)
        none = np.zeros(len(self._tables), np.int64)
        self._layout = table_layout(of_features, tables, seed, origins)._replace(
            row_base=none, weight_base=none, slot_base=none
        )
        self._kept: dict[int, TableState] = {}
        self._is_known: dict[int, Array] = {}

    def clear(self) -> None:
        """Forget what was kept."""
        self._kept.clear()
        self._is_known.clear()

    def initial(self, t: int, rows: Array) -> TableState:
        """The initial values of rows of a table."""
        dim, slots, count = int(self._layout.dims[t]), int(self._layout.slot_dims[t]), len(rows)
        counts = np.zeros(len(self._tables), np.int64)
        counts[t] = count
        values = TableValues(
            np.empty(count * dim, np.float32), np.empty(count * slots, np.float32), np.empty(count, np.uint8)
        )
        assign_rows(np.arange(count), rows, counts, self._layout, values)
        return TableState(rows, values.weights.reshape(count, dim), values.slots.reshape(count, slots))

    def after_round(self, t: int, rows: Array, rule: str) -> TableState | None:
        """The values of rows that get places of others, by a rule of :data:`~trainer.pruning_options.RESETS`; None: those of the others."""
        if not len(rows) or rule == "none":
            return None
        found = self.initial(t, rows)
        if rule == "zero":
            found.weights[:] = 0.0
        elif rule == "restored" and t in self._kept:
            known, kept = self._is_known[t][rows], self._kept[t]
            found.weights[known], found.slots[known] = kept.weights[rows[known]], kept.slots[rows[known]]
        return found

    def kept(self, t: int) -> TableState:
        """What was kept of a table."""
        if t not in self._kept:
            return empty_state(self._tables[t])
        kept, rows = self._kept[t], np.flatnonzero(self._is_known[t])
        return TableState(rows, kept.weights[rows], kept.slots[rows])

    def keep(self, t: int, leaving: TableState) -> None:
        """Keep the values of rows that leave, which ``restored`` returns."""
        if t not in self._kept:
            size, dim, slots = self._tables[t].vocabulary_size, leaving.weights.shape[1], leaving.slots.shape[1]
            self._is_known[t] = np.zeros(size, bool)
            self._kept[t] = TableState(
                np.zeros(0, np.int64), np.zeros((size, dim), np.float32), np.zeros((size, slots), np.float32)
            )
        kept, rows = self._kept[t], leaving.rows
        kept.weights[rows], kept.slots[rows], self._is_known[t][rows] = leaving.weights, leaving.slots, True
