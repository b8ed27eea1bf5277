"""What holds all rows of the tables, as hybrid placement sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from trainer.embedding.engine import RowValues, SavedTables

Array = np.ndarray[Any, np.dtype[Any]]


class ColdTier(SavedTables, Protocol):
    """All rows of the tables, those that are hot included, whose values here may be old.

    Rows are int64, table after table, of which each table has ``counts``; values are float32, one row after the other. A
    :class:`~trainer.embedding.cpu.engine.CpuEngine` with one feature a table is one, in the memory of the process, and
    :class:`~trainer.embedding.hybrid.server_tier.ServerTier` one on parameter servers.
    """

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """The weights of the rows; the array may be written to again by the next call."""

    def update_rows(self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array]) -> object:
        """One optimizer update for each distinct row, with the sum of its gradients in the order of the parts.

        ``asked``: of each part, rows and their numbers by table.
        """

    def read_values(self, rows: Array, counts: Array) -> RowValues:
        """The weights and slots of the rows."""

    def write_values(self, rows: Array, counts: Array, values: RowValues, *, are_changed: Literal[True]) -> None:
        """Replace the weights and slots of distinct rows. ``are_changed``: they belong to the state of the tables from now on."""

    def weights_of(self, table: str, rows: Array) -> Array:
        """Weights, float32 [len(rows), dim], for inspection and tests."""
