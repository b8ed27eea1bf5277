"""The rows of tables whose rows have places among others, at one moment, by ascending ids, read while training goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from trainer.embedding.cpu.snapshot import RANGE_BYTES, rows_of_range
from trainer.embedding.engine import ChangedRows

Array = np.ndarray[Any, np.dtype[Any]]


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
        range_bytes: the bytes of weights and slots that are read at once.
    """

    def __init__(
        self, places: PlaceReader, found: Sequence[tuple[Array, Array]], table_of: Sequence[int] | None = None, *,
        range_bytes: int = RANGE_BYTES,
    ) -> None:  # fmt: skip
        self._places, self._found, self._range_bytes = places, list(found), range_bytes
        self._table_of = range(len(found)) if table_of is None else table_of

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table, in their order."""
        return tuple(len(ids) for ids, _ in self._found)

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, ids ascending, some at a time; tables must be taken in order, each to its end."""
        (ids, places), of = self._found[t], self._table_of[t]
        order = np.argsort(ids)
        step = rows_of_range(self._places.row_floats(of), self._range_bytes)
        for first in range(0, len(ids), step):
            own = order[first : first + step]
            weights, slots = self._places.capture_rows(of, places[own])
            yield ChangedRows(ids[own], weights, slots)
        if t == len(self._found) - 1:
            self.close()

    def close(self) -> None:
        """End the snapshot: training that waits for it goes on."""
        self._places.close()
