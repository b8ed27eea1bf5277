"""What holds all rows of the tables, as a store of two tiers sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from trainer.tables.engine import RowValues, TableState
from trainer.tables.spec import TableSpec
from trainer.tables.stores.row_store import StoreSnapshot
from transforms.arrays import Array


class ColdTier(Protocol):
    """All rows of the tables, those that are hot included, whose values here may be old.

    It is a :class:`~trainer.tables.stores.row_store.RowStore` that needs no lookups, and whose values can be read and written:
    a :class:`~trainer.tables.stores.dense.dense_store.DenseStore` in the memory of the process, or
    :class:`~trainer.tables.routes.servers.server_tier.ServerTier` on parameter servers.
    """

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The tables, in the order of rows."""

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """The weights of the rows; the array may be written to again by the next call."""

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None
    ) -> object:
        """One optimizer update for each distinct row, with the sum of its gradients in the order of the parts."""

    def read_values(self, rows: Array, counts: Array) -> RowValues:
        """The weights and slots of the rows."""

    def write_values(self, rows: Array, counts: Array, values: RowValues, *, are_changed: Literal[True]) -> None:
        """Replace the weights and slots of distinct rows. ``are_changed``: they belong to the state of the tables from now on."""

    def weights_of(self, table: str, rows: Array) -> Array:
        """Weights, float32 [len(rows), dim], for inspection and tests."""

    def table_state(self, t: int) -> TableState:
        """A copy of the changed rows of a table."""

    def section_names(self, t: int) -> tuple[str, ...]:
        """The sections without which the saved state of a table is not whole."""

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Replace all rows. Raises :class:`~trainer.errors.TornCheckpoint`."""

    def begin_snapshot(self, *, most_bytes: int) -> StoreSnapshot:
        """The changed rows of this moment."""

    def end_snapshot(self) -> None:
        """End the snapshot, if there is one."""
