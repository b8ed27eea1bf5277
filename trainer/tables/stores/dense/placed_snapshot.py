"""The rows of tables whose rows have places among others, at one moment, by ascending ids, read while training goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from trainer.tables.engine import NO_SNAPSHOT_SECTIONS, ChangedRows, SnapshotSections
from trainer.tables.stores.dense.snapshot import RANGE_BYTES, rows_of_range
from transforms.arrays import Array


class PlaceReader(Protocol):
    """A snapshot of the places of tables."""

    def row_floats(self, t: int) -> int:
        """The weights and slot values of a place of a table."""

    def capture_rows(self, t: int, rows: Array) -> tuple[Array, Array]:
        """The weights and slots of distinct places of a table; each once."""

    def close(self) -> None:
        """End the snapshot."""


class PlacedSnapshot:
    """A snapshot of places, with the ids that they had at its moment.

    Args:
        places: the snapshot of the engine that has the places.
        found: of each table, the ids of its changed rows, int64, and their places.
        table_of: the table of the engine that has the places of each of them; None: its own one.
        sections: what each table has beside its rows; None: nothing.
    """

    def __init__(
        self, places: PlaceReader, found: Sequence[tuple[Array, Array]], table_of: Sequence[int] | None = None, *,
        sections: Sequence[SnapshotSections] | None = None,
    ) -> None:  # fmt: skip
        self._sections = sections
        self._places, self._found = places, list(found)
        self._table_of = range(len(found)) if table_of is None else table_of
        self._unread = [len(ids) for ids, _ in found]
        self._orders: dict[int, Array] = {}

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table, in their order."""
        return tuple(len(ids) for ids, _ in self._found)

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, ids ascending, some at a time; to its end."""
        count, step = len(self._found[t][0]), rows_of_range(self._places.row_floats(self._table_of[t]), RANGE_BYTES)  # fmt: skip
        for first in range(0, count, step):
            yield self._capture(t, first, min(first + step, count))
        self._have_read(t, 0)

    def sections(self, t: int) -> SnapshotSections:
        """See :meth:`TablesSnapshot.sections <trainer.tables.engine.TablesSnapshot.sections>`."""
        return NO_SNAPSHOT_SECTIONS if self._sections is None else self._sections[t]

    def capture(self, t: int, first: int, stop: int) -> ChangedRows:
        """The changed rows of a table with ids from ``first`` to ``stop``; each once."""
        ids = self._found[t][0][self._order(t)]
        return self._capture(t, *np.searchsorted(ids, [first, stop]).tolist())

    def _order(self, t: int) -> Array:
        if t not in self._orders:
            self._orders[t] = np.argsort(self._found[t][0])
        return self._orders[t]

    def _capture(self, t: int, first: int, stop: int) -> ChangedRows:
        (ids, places), own = self._found[t], self._order(t)[first:stop]
        weights, slots = self._places.capture_rows(self._table_of[t], places[own])
        self._have_read(t, stop - first)
        return ChangedRows(ids[own], weights, slots)

    def skip(self, t: int) -> None:
        """Leave out a table that is not read."""
        self._have_read(t, self._unread[t])

    def _have_read(self, t: int, count: int) -> None:
        """After the last row of all tables the snapshot ends."""
        self._unread[t] -= count
        if not any(self._unread):
            self.close()

    def close(self) -> None:
        """End the snapshot: training that waits for it goes on."""
        self._places.close()
