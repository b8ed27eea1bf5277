"""The changed rows of hashed tables at one moment, by ascending ids, read while training goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trainer.embedding.cpu.snapshot import RANGE_BYTES, EngineSnapshot, rows_of_range
from trainer.embedding.engine import ChangedRows

Array = np.ndarray[Any, np.dtype[Any]]


class HashedSnapshot:
    """A snapshot of places, with the ids that they had at its moment.

    Args:
        places: the snapshot of the engine that has the places.
        found: of each table, the ids of its changed rows, int64, and their places.
        range_bytes: the bytes of weights and slots that are read at once.
    """

    def __init__(
        self, places: EngineSnapshot, found: Sequence[tuple[Array, Array]], *, range_bytes: int = RANGE_BYTES
    ) -> None:
        self._places, self._found, self._range_bytes = places, list(found), range_bytes

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table, in their order."""
        return tuple(len(ids) for ids, _ in self._found)

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, ids ascending, some at a time; tables must be taken in order, each to its end."""
        ids, places = self._found[t]
        order = np.argsort(ids)
        step = rows_of_range(self._places.row_floats(t), self._range_bytes)
        for first in range(0, len(ids), step):
            own = order[first : first + step]
            weights, slots = self._places.capture_rows(t, places[own])
            yield ChangedRows(ids[own], weights, slots)
        if t == len(self._found) - 1:
            self.close()

    def close(self) -> None:
        """End the snapshot: training that waits for it goes on."""
        self._places.close()
