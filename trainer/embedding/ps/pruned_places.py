"""The rows that groups of tables share, on parameter servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trainer.embedding.cpu.placed_snapshot import PlacedSnapshot
from trainer.embedding.cpu.snapshot import rows_of_range
from trainer.embedding.engine import RowValues, SnapshotSections, TableState
from trainer.embedding.pruned.addresses import Addresses
from trainer.embedding.ps.engine import PsEngine
from trainer.embedding.ps.row_values import ServedRowValues
from transforms.arrays import Array

_NO_ROWS = np.zeros(0, np.int64)
#: The bytes of values in one message.
MESSAGE_BYTES = 16 << 20


class ServedRows:
    """See :class:`~trainer.embedding.pruned.places.PlaceValues`. Written values are sent together by :meth:`flush`.

    Args:
        engine: a table of places for each group, in their order; it is the only client of its servers.
        addresses: of the rows with places.
    """

    nbytes = 0

    def __init__(self, engine: PsEngine, addresses: Addresses) -> None:
        self._engine, self._addresses, self._values = engine, addresses, engine.row_values()
        self._written: list[tuple[int, Array, TableState]] = []

    def clear(self) -> None:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
        self._written.clear()

    def write(self, t: int, places: Array, values: TableState) -> None:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
        if len(places):
            self._written.append((int(self._addresses.group_of[t]), places, values))

    def flush(self) -> None:
        """Send what was written, without waiting for the servers: one message for each of them, unless it would be a long one."""
        if not self._written:
            return
        written, self._written = self._written, []
        by_group: list[list[tuple[Array, TableState]]] = [[] for _ in self._engine.tables]
        for group, places, values in written:
            by_group[group].append((places, values))
        in_order = [values for own in by_group for _, values in own]
        if sum(one.weights.nbytes + one.slots.nbytes for one in in_order) <= MESSAGE_BYTES:
            asked = [np.concatenate([_NO_ROWS, *(one for one, _ in own)]) for own in by_group]
            self._values.write(asked, _joined(in_order))
            return
        for group, own in enumerate(by_group):
            for places, values in own:
                for piece in self._pieces(group, len(places)):
                    part = TableState(_NO_ROWS, values.weights[piece], values.slots[piece])
                    self._values.write(_only(len(by_group), group, places[piece]), _joined([part]))

    def _pieces(self, group: int, count: int) -> Iterator[slice]:
        """Rows of a group in pieces that messages take."""
        step = rows_of_range(int(self._values.weight_dims[group] + self._values.slot_dims[group]), MESSAGE_BYTES)
        return (slice(first, first + step) for first in range(0, count, step))

    def read(self, t: int, rows: Array, places: Array) -> TableState:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
        self.flush()
        group = int(self._addresses.group_of[t])
        dims = int(self._values.weight_dims[group]), int(self._values.slot_dims[group])
        weights, slots = (np.empty((len(places), dim), np.float32) for dim in dims)
        for piece in self._pieces(group, len(places)):
            own = places[piece]
            found = self._values.read(_only(len(self._engine.tables), group, own))
            weights[piece], slots[piece] = _of_group(found, self._values, group, len(own))
        return TableState(rows, weights, slots)

    def load(self, states: Sequence[tuple[Array, TableState]]) -> None:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
        loaded = {}
        for group, table in enumerate(self._engine.tables):
            own = [states[t] for t in np.flatnonzero(self._addresses.group_of == group).tolist()]
            places = np.concatenate([one for one, _ in own])
            order = np.argsort(places)
            weights, slots = (
                np.concatenate([getattr(values, name) for _, values in own])[order] for name in ("weights", "slots")
            )
            loaded[table.name] = TableState(places[order], weights, slots)
        self._engine.load_state(loaded)

    def begin_snapshot(self, most_bytes: int, sections: Sequence[SnapshotSections]) -> PlacedSnapshot:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`; servers keep what changes."""
        self.flush()
        self._engine.begin_snapshot(most_bytes=most_bytes)
        found = [self._addresses.placed(t) for t in range(len(self._addresses.group_of))]
        places, table_of = _ServedSnapshot(self._engine, self._values), self._addresses.group_of.tolist()
        return PlacedSnapshot(places, found, table_of, sections=sections)

    def end_snapshot(self) -> None:
        """See :class:`~trainer.embedding.pruned.places.PlaceValues`."""
        self._engine.end_snapshot()


class _ServedSnapshot:
    """The places of groups at the moment of the servers' snapshot."""

    def __init__(self, engine: PsEngine, values: ServedRowValues) -> None:
        self._engine, self._values = engine, values

    def row_floats(self, t: int) -> int:
        """The weights and slot values of a place of a group."""
        return int(self._values.weight_dims[t] + self._values.slot_dims[t])

    def capture_rows(self, t: int, rows: Array) -> tuple[Array, Array]:
        """The weights and slots of places of a group."""
        found = self._values.read_snapshot(_only(len(self._engine.tables), t, rows))
        return _of_group(found, self._values, t, len(rows))

    def close(self) -> None:
        """End the snapshot."""
        self._engine.end_snapshot()


def _joined(values: Sequence[TableState]) -> RowValues:
    weights, slots = (
        np.concatenate([getattr(one, name).reshape(-1) for one in values]) for name in ("weights", "slots")
    )
    return RowValues(weights, slots)


def _only(groups: int, group: int, places: Array) -> list[Array]:
    """Rows of one group."""
    return [places if g == group else _NO_ROWS for g in range(groups)]


def _of_group(found: RowValues, values: ServedRowValues, group: int, count: int) -> tuple[Array, Array]:
    """Weights and slots of rows of one group."""
    shapes = ((count, int(dims[group])) for dims in (values.weight_dims, values.slot_dims))
    weights, slots = (one.reshape(shape) for one, shape in zip((found.weights, found.slots), shapes, strict=True))
    return weights, slots
