"""The values of the rows that groups of tables share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from trainer.planning.row_groups import RowGroup
from trainer.tables.engine import SnapshotSections, TableState
from trainer.tables.kernels.gradients import CHANGED
from trainer.tables.kernels.layout import (
    Bags,
    FeatureLayout,
    TableLayout,
    TableValues,
    feature_layout,
    table_layout,
    table_values,
)
from trainer.tables.kernels.table_bytes import does_not_fit, machine_bytes
from trainer.tables.spec import Constant, FeatureSpec, TableSpec
from trainer.tables.stores.dense.dense_store import one_event
from trainer.tables.stores.dense.placed_snapshot import PlacedSnapshot
from trainer.tables.stores.dense.snapshot import EngineSnapshot
from trainer.tables.stores.pruned.addresses import Addresses
from trainer.tables.stores.pruned.memory import PrunedMemory
from transforms.arrays import Array

_NO_SHARES = np.zeros(0, np.float32)


def group_tables(tables: Sequence[TableSpec], groups: Sequence[RowGroup]) -> list[TableSpec]:
    """Of each group the table of its places, and of a row of zeros, the last one."""
    return [
        replace(
            tables[one.tables[0]],
            name=f"group {g}",
            vocabulary_size=one.rows + 1,
            combiner="sum",
            initializer=Constant(0.0),
        )
        for g, one in enumerate(groups)
    ]


class GroupRows:
    """The weights and slots of the places of all groups. A table is one of the engine's; its places are int64, in its group.

    The last row of each group is one of zeros, which no update changes.

    Attributes:
        layout: of the tables, whose rows are the places of their groups.
        of_groups: of the groups, as tables.
        values: of all places.
        group_of: the group of each feature.
    """

    values: TableValues

    def __init__(
        self, tables: Sequence[TableSpec], of_features: FeatureLayout, groups: Sequence[RowGroup], addresses: Addresses, seed: int,
        memory: PrunedMemory,
    ) -> None:  # fmt: skip
        self._addresses, self._groups, self._memory = addresses, len(groups), memory
        self._specs = group_tables(tables, groups)
        self.of_groups = table_layout(
            feature_layout([FeatureSpec(one.name, one) for one in self._specs], self._specs), self._specs, seed
        )
        whole, group, of_tables = table_layout(of_features, tables, seed), self.of_groups, addresses.group_of
        rows = group.vocabulary[of_tables]
        self.layout: TableLayout = whole._replace(
            vocabulary=rows, trained=rows - 1, row_base=group.row_base[of_tables],
            weight_base=group.weight_base[of_tables], slot_base=group.slot_base[of_tables],
        )  # fmt: skip
        self.group_of = of_tables[of_features.table]
        self._snapshot: EngineSnapshot | None = None
        self.allocate(is_fresh=memory.is_fresh)

    @property
    def places(self) -> int:
        """The places of all groups, and their rows of zeros."""
        return len(self.values.row_state)

    def allocate(self, *, is_fresh: bool) -> None:
        """Take the values that the memory has; fresh ones are zeros, in other memory than those before."""
        try:
            self.values = table_values(self.of_groups, self._memory.tables, is_fresh=is_fresh)
        except (MemoryError, ValueError) as error:
            raise does_not_fit(self._specs, machine_bytes()) from error
        if is_fresh:  # rows of zeros have values
            self.values.row_state[self.of_groups.row_base + self._addresses.rows] = CHANGED
        self._snapshot = None

    @contextmanager
    def changing(self, bags: Bags, group_of: Array) -> Iterator[None]:
        """While rows change: an undo log keeps them, and a snapshot what it has not read. ``group_of``: the group of each feature of ``bags``."""
        with self._memory.transaction():
            self._memory.keep_rows(bags, group_of, self.of_groups, self.values)
            snapshot = self._snapshot
            if snapshot is None or snapshot.is_done:
                self._snapshot = None
                yield
                return
            with snapshot.changing():
                snapshot.put_aside(bags, group_of)
                yield

    def write(self, t: int, places: Array, values: TableState) -> None:
        """Give distinct places of a table values. A snapshot keeps those before."""
        counts = np.zeros(self._groups, np.int64)
        counts[self._addresses.group_of[t]] = len(places)
        one = one_event(places, counts)
        with self.changing(Bags(one.ids, one.offsets, _NO_SHARES), np.arange(self._groups)):
            self._write(t, places, values)

    def load(self, states: Sequence[tuple[Array, TableState]]) -> None:
        """Give places values, of each table some, after :meth:`allocate` and while no snapshot is read."""
        for t, (places, values) in enumerate(states):
            self._write(t, places, values)

    def _write(self, t: int, places: Array, values: TableState) -> None:
        weights, slots = self._of_table(t)
        weights[places], slots[places] = values.weights, values.slots
        self.values.row_state[int(self.layout.row_base[t]) + places] = CHANGED

    def read(self, t: int, rows: Array, places: Array) -> TableState:
        """The values of places, as those of rows of a table."""
        weights, slots = self._of_table(t)
        return TableState(rows, weights[places], slots[places])

    def _of_table(self, t: int) -> tuple[Array, Array]:
        """The weights and slots of the places of a table's group."""
        of, values = self.layout, self.values
        rows, dim, slots = (int(one[t]) for one in (of.vocabulary, of.dims, of.slot_dims))
        first, slot = int(of.weight_base[t]), int(of.slot_base[t])
        return (
            values.weights[first : first + rows * dim].reshape(rows, dim),
            values.slots[slot : slot + rows * slots].reshape(rows, slots),
        )

    @property
    def is_read(self) -> bool:
        """Whether a snapshot may read places that have not changed since it began."""
        return self._snapshot is not None and not self._snapshot.is_done

    def release_memory(self, g: int, first: int, stop: int) -> None:
        """Release the memory of the places of a group from ``first`` to ``stop`` to the system, while no snapshot is read."""
        of = self.of_groups
        for name, base, dims in (("weights", of.weight_base, of.dims), ("slots", of.slot_base, of.slot_dims)):
            dim, start = int(dims[g]), 4 * int(base[g])
            self._memory.release_memory(name, start + 4 * first * dim, start + 4 * stop * dim)

    def row_bytes(self, g: int) -> int:
        """The bytes of a place of a group."""
        return 4 * int(self.of_groups.dims[g] + self.of_groups.slot_dims[g])

    def begin_snapshot(self, most_bytes: int, sections: Sequence[SnapshotSections]) -> PlacedSnapshot:
        """The rows of all tables that have a place now, and their ``sections``, to be read while they change."""
        self._snapshot = EngineSnapshot(self.of_groups, self.values, most_bytes=most_bytes)
        found = [self._addresses.placed(t) for t in range(len(self._addresses.group_of))]
        return PlacedSnapshot(self._snapshot, found, self._addresses.group_of.tolist(), sections=sections)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def begin_kept_snapshot(self, most_bytes: int, patience_secs: float | None) -> EngineSnapshot:
        """A snapshot of places, in the memory of the tables."""
        self._snapshot = EngineSnapshot(
            self.of_groups,
            self.values,
            most_bytes=most_bytes,
            memory=self._memory.tables,
            patience_secs=patience_secs,
        )
        return self._snapshot

    def resume_snapshot(self, patience_secs: float) -> EngineSnapshot | None:
        """The snapshot that an earlier process has begun in the memory of the tables, or None."""
        self._snapshot = EngineSnapshot.resume(
            self.of_groups, self.values, self._memory.tables, patience_secs=patience_secs
        )
        return self._snapshot
