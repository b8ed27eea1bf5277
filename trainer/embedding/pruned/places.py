"""What the places of groups have: values, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from trainer.embedding.cpu.placed_snapshot import PlacedSnapshot
from trainer.embedding.engine import SnapshotSections, TableState
from trainer.embedding.spec import Constant, TableSpec
from trainer.planning.row_groups import RowGroup
from transforms.arrays import Array


class PlaceValues(Protocol):
    """The weights and slots of the places of all groups. A table is one of the engine's; its places are int64, in its group."""

    @property
    def nbytes(self) -> int:
        """The bytes that they take in this process."""

    def clear(self) -> None:
        """Forget all values, at the latest with the next :meth:`load`."""

    def write(self, t: int, places: Array, values: TableState) -> None:
        """Give places of a table values. A snapshot keeps those before."""

    def read(self, t: int, rows: Array, places: Array) -> TableState:
        """The values of places, as those of rows of a table."""

    def load(self, states: Sequence[tuple[Array, TableState]]) -> None:
        """Give places values, of each table some, after :meth:`clear` and while no snapshot is read."""

    def begin_snapshot(self, most_bytes: int, sections: Sequence[SnapshotSections]) -> PlacedSnapshot:
        """The rows of all tables that have a place now, and their ``sections``, to be read while they change."""

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""


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
