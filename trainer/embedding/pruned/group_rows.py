"""The rows that groups of tables share, in the memory of this process: where they are, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from trainer.embedding.cpu.dense_store import one_event
from trainer.embedding.cpu.gradients import CHANGED
from trainer.embedding.cpu.layout import Bags, FeatureLayout, feature_layout, table_layout, table_values
from trainer.embedding.cpu.memory import PrivateMemory
from trainer.embedding.cpu.placed_snapshot import PlacedSnapshot
from trainer.embedding.cpu.snapshot import EngineSnapshot
from trainer.embedding.engine import SnapshotSections, TableState
from trainer.embedding.pruned.addresses import Addresses
from trainer.embedding.pruned.places import group_tables
from trainer.embedding.spec import FeatureSpec, TableSpec
from trainer.planning.row_groups import RowGroup
from transforms.arrays import Array

_NO_SHARES = np.zeros(0, np.float32)


class GroupRows:
    """See :class:`~trainer.embedding.pruned.places.PlaceValues`; the last row of each group is one of zeros, which no update changes.

    Attributes:
        layout: of the tables, whose rows are the places of their groups.
        values: of all places.
        group_of: the group of each feature.
    """

    def __init__(
        self, tables: Sequence[TableSpec], of_features: FeatureLayout, groups: Sequence[RowGroup], addresses: Addresses, seed: int
    ) -> None:  # fmt: skip
        self._addresses, self._groups, specs = addresses, len(groups), group_tables(tables, groups)
        self._of_groups = table_layout(
            feature_layout([FeatureSpec(one.name, one) for one in specs], specs), specs, seed
        )
        whole, group, of_tables = table_layout(of_features, tables, seed), self._of_groups, addresses.group_of
        rows = group.vocabulary[of_tables]
        self.layout = whole._replace(vocabulary=rows, trained=rows - 1, row_base=group.row_base[of_tables],
                                     weight_base=group.weight_base[of_tables], slot_base=group.slot_base[of_tables])  # fmt: skip
        self.group_of = of_tables[of_features.table]

    def clear(self) -> None:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
        self.values = table_values(self._of_groups, PrivateMemory(), is_fresh=True)
        self.values.row_state[self._of_groups.row_base + self._addresses.rows] = CHANGED  # rows of zeros have values
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

    def write(self, t: int, places: Array, values: TableState) -> None:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
        counts = np.zeros(self._groups, np.int64)
        counts[self._addresses.group_of[t]] = len(places)
        one = one_event(places, counts)
        with self.changing(Bags(one.ids, one.offsets, _NO_SHARES), np.arange(self._groups)):
            self._write(t, places, values)

    def load(self, states: Sequence[tuple[Array, TableState]]) -> None:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
        for t, (places, values) in enumerate(states):
            self._write(t, places, values)

    def _write(self, t: int, places: Array, values: TableState) -> None:
        weights, slots = self._of_table(t)
        weights[places], slots[places] = values.weights, values.slots
        self.values.row_state[int(self.layout.row_base[t]) + places] = CHANGED

    def read(self, t: int, rows: Array, places: Array) -> TableState:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
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

    def begin_snapshot(self, most_bytes: int, sections: Sequence[SnapshotSections]) -> PlacedSnapshot:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
        self._snapshot = EngineSnapshot(self._of_groups, self.values, most_bytes=most_bytes)
        found = [self._addresses.placed(t) for t in range(len(self._addresses.group_of))]
        return PlacedSnapshot(self._snapshot, found, self._addresses.group_of.tolist(), sections=sections)

    def end_snapshot(self) -> None:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
