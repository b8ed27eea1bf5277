"""The rows that groups of tables share: where they are, their values, and how a row that comes begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from trainer.embedding.cpu.engine import one_event
from trainer.embedding.cpu.gradients import CHANGED
from trainer.embedding.cpu.initial_rows import assign_rows
from trainer.embedding.cpu.layout import Bags, FeatureLayout, feature_layout, table_layout, table_values
from trainer.embedding.cpu.memory import PrivateMemory
from trainer.embedding.cpu.placed_snapshot import PlacedSnapshot
from trainer.embedding.cpu.snapshot import EngineSnapshot
from trainer.embedding.engine import TableState
from trainer.embedding.pruned.addresses import Addresses
from trainer.embedding.spec import FeatureSpec, TableSpec
from trainer.planning.row_groups import RowGroup

Array = np.ndarray[Any, np.dtype[Any]]

_NO_SHARES = np.zeros(0, np.float32)


class GroupRows:
    """The values of the places of ``groups``; the last row of each is one of zeros, which no update changes.

    Attributes:
        layout: of the tables, whose rows are the places of their groups.
        values: of all places.
        group_of: the group of each feature.
    """

    def __init__(
        self, tables: Sequence[TableSpec], of_features: FeatureLayout, groups: Sequence[RowGroup], addresses: Addresses, seed: int
    ) -> None:  # fmt: skip
        self._tables, self._addresses, self._groups = tuple(tables), addresses, len(groups)
        specs = [replace(tables[one.tables[0]], name=f"group {g}", vocabulary_size=one.rows + 1, initializer=None)
                 for g, one in enumerate(groups)]  # fmt: skip
        self._of_groups = table_layout(
            feature_layout([FeatureSpec(one.name, one) for one in specs], specs), specs, seed
        )
        whole, group, of_tables = table_layout(of_features, tables, seed), self._of_groups, addresses.group_of
        rows = group.vocabulary[of_tables]
        self.layout = whole._replace(vocabulary=rows, trained=rows - 1, row_base=group.row_base[of_tables],
                                     weight_base=group.weight_base[of_tables], slot_base=group.slot_base[of_tables])  # fmt: skip
        self.group_of = of_tables[of_features.table]
        self.clear()

    def clear(self) -> None:
        """Forget all values."""
        self.values = table_values(self._of_groups, PrivateMemory(), is_fresh=True)
        self.values.row_state[self._of_groups.row_base + self._addresses.rows] = CHANGED  # rows of zeros have values
        self._kept: dict[int, dict[str, Array]] = {}
        self._snapshot: EngineSnapshot | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of all values."""
        return sum(int(one.nbytes) for one in self.values)

    @contextmanager
    def changing(self, bags: Bags, group_of: Array) -> Iterator[None]:
        """While rows change: a snapshot keeps what it has not read. ``group_of``: the group of each feature of ``bags``."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.is_done:
            self._snapshot = None
            yield
            return
        with snapshot.changing():
            snapshot.put_aside(bags, group_of)
            yield

    def _changing_places(self, t: int, places: Array) -> AbstractContextManager[None]:
        counts = np.zeros(self._groups, np.int64)
        counts[self._addresses.group_of[t]] = len(places)
        one = one_event(places, counts)
        return self.changing(Bags(one.ids, one.offsets, _NO_SHARES), np.arange(self._groups))

    def begin_rows(self, t: int, rows: Array, places: Array) -> None:
        """Give rows of a table their initial values at these places."""
        counts = np.zeros(len(self._tables), np.int64)
        counts[t] = len(rows)
        with self._changing_places(t, places):
            assign_rows(places, rows, counts, self.layout, self.values)
            self.values.row_state[int(self.layout.row_base[t]) + places] = CHANGED

    def reset(self, t: int, rows: Array, places: Array, rule: str) -> None:
        """Give rows that get places of others their values, by a rule of :data:`~trainer.pruning_options.RESETS`."""
        if not len(rows) or rule == "none":
            return
        self.begin_rows(t, rows, places)
        with self._changing_places(t, places):
            if rule == "zero":
                self.values.weights[self._indices(t, places, slots=False)] = 0.0
            elif rule == "restored":
                self._restore(t, rows, places)

    def keep(self, t: int, rows: Array) -> None:
        """Keep the values of rows that leave, which ``restored`` returns."""
        places, size, of = (
            self._addresses.of_table(t)[rows].astype(np.int64),
            self._tables[t].vocabulary_size,
            self.layout,
        )
        if t not in self._kept:
            self._kept[t] = {"weights": np.zeros((size, int(of.dims[t])), np.float32),
                             "slots": np.zeros((size, int(of.slot_dims[t])), np.float32), "known": np.zeros(size, bool)}  # fmt: skip
        kept, state = self._kept[t], self.read(t, rows, places)
        kept["weights"][rows], kept["slots"][rows], kept["known"][rows] = state.weights, state.slots, True

    def _restore(self, t: int, rows: Array, places: Array) -> None:
        if (kept := self._kept.get(t)) is not None:
            known = kept["known"][rows]
            self._write(t, places[known], kept["weights"][rows[known]], kept["slots"][rows[known]])

    def _indices(self, t: int, places: Array, *, slots: bool) -> Array:
        of = self.layout
        base, dim = (of.slot_base, of.slot_dims) if slots else (of.weight_base, of.dims)
        found: Array = (int(base[t]) + places * int(dim[t]))[:, None] + np.arange(int(dim[t]))
        return found

    def read(self, t: int, rows: Array, places: Array) -> TableState:
        """The values of rows of a table at their places."""
        weights = self.values.weights[self._indices(t, places, slots=False)]
        return TableState(rows, weights, self.values.slots[self._indices(t, places, slots=True)])

    def load(self, t: int, places: Array, state: TableState) -> None:
        """Give places the values of a state; not while a snapshot is read."""
        self._write(t, places, state.weights, state.slots)
        self.values.row_state[int(self.layout.row_base[t]) + places] = CHANGED

    def _write(self, t: int, places: Array, weights: Array, slots: Array) -> None:
        self.values.weights[self._indices(t, places, slots=False)] = weights
        self.values.slots[self._indices(t, places, slots=True)] = slots

    def begin_snapshot(self, most_bytes: int) -> PlacedSnapshot:
        """The rows of all tables that have a place now, to be read while they change."""
        self._snapshot = EngineSnapshot(np.arange(self._groups), self._of_groups, self.values, most_bytes=most_bytes)
        found = [self._addresses.placed(t) for t in range(len(self._tables))]
        return PlacedSnapshot(self._snapshot, found, self._addresses.group_of.tolist())

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
