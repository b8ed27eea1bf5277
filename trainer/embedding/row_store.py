"""What holds rows of tables, wherever batches that need them are combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from trainer.embedding.engine import ChangedRows, SnapshotSections, TableState
from trainer.embedding.hashed_counts import HashedCounts

Array = np.ndarray[Any, np.dtype[Any]]


class StoreSnapshot(Protocol):
    """The changed rows of a store at one moment, as it numbers them; see :class:`~trainer.embedding.engine.TablesSnapshot`."""

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table."""

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, range by range."""

    def sections(self, t: int) -> SnapshotSections:
        """What a table has beside its rows."""

    def capture(self, t: int, first: int, stop: int) -> ChangedRows:
        """The changed rows of a table from ``first`` to ``stop``."""

    def skip(self, t: int) -> None:
        """Leave out a table that is not read."""

    def close(self) -> None:
        """End the snapshot."""


class RowStore(Protocol):
    """Rows of tables, or of parts of tables, as their owner numbers them. Which of them have memory is the store's own.

    Rows are int64, table after table, of which each table has ``counts``; values are float32, one row after the other. Calls come from one
    thread, but for the reading of a snapshot.
    """

    @property
    def needs_lookups(self) -> bool:
        """Whether an update must say how often each of its rows was looked up."""

    @property
    def hashed_counts(self) -> Mapping[str, HashedCounts]:
        """What each hashed table has done, by name."""

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """The weights of the rows. Raises :class:`~trainer.errors.BadBatch` for a row outside its table."""

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None, lookups: Sequence[Array] = ()
    ) -> Array:  # fmt: skip
        """One optimizer update for each distinct row, with the sum of its gradients in the order of the parts.

        Returns the distinct rows of each table, int64.

        Args:
            asked: of each part, rows and their numbers by table.
            gradients: of each part, float32 as :meth:`read_rows` returns them.
            rates: float32, the learning rate of each table; None: those of their optimizers.
            lookups: of each part, int32, how often each of its rows was looked up; none unless :attr:`needs_lookups`.

        Raises :class:`~trainer.errors.BadBatch`; nothing is changed then.
        """

    def table_state(self, t: int) -> TableState:
        """A copy of the changed rows of a table, and of what it has beside them."""

    def section_names(self, t: int) -> tuple[str, ...]:
        """The sections without which the saved state of a table is not whole."""

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Replace all rows by those of the :meth:`table_state` of each table, by name. Raises :class:`~trainer.errors.TornCheckpoint`."""

    def begin_snapshot(self, *, most_bytes: int) -> StoreSnapshot:
        """The changed rows of this moment, to be read in another thread while training goes on; one snapshot at a time."""

    def end_snapshot(self) -> None:
        """End the snapshot, if there is one."""

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
