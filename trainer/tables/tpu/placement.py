"""Where the rows of a table are in the stacked, sharded arrays of SparseCore. Pure.

A stack has one shard for each SparseCore of the slice. Row r of a table is in shard ``(r + rotation) % shards``, at row
``r // shards + row_offset`` of it. Shards are padded to a multiple of rows, rows to a multiple of 8 columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.arrays import Array

#: Rows that are moved at once, so that the memory for them does not grow with the table.
CHUNK_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of one table.

    Attributes:
        table: its name.
        stack: the name of its stack.
        rows: of the table.
        dim: columns of the table.
        padded_rows: rows of the table with padding.
        padded_dim: columns of the stack.
        shards: SparseCores of the slice.
        shard_rows: rows of a shard of the stack.
        row_offset: where the table begins in each shard.
        rotation: the shard of its row 0.
    """

    table: str
    stack: str
    rows: int
    dim: int
    padded_rows: int
    padded_dim: int
    shards: int
    shard_rows: int
    row_offset: int
    rotation: int

    @property
    def stack_shape(self) -> tuple[int, int, int]:
        """Shards, rows of a shard, columns."""
        return self.shards, self.shard_rows, self.padded_dim

    def read(self, stack: Array, rows: Array) -> Array:
        """Rows of the table, [len(rows), dim], from an array of the stack's shape."""
        found: Array = stack[self._shards_of(rows), self._positions_of(rows), : self.dim]
        return found

    def write(self, stack: Array, rows: Array, values: Array) -> None:
        """Set rows of the table in an array of the stack's shape."""
        stack[self._shards_of(rows), self._positions_of(rows), : self.dim] = values

    def chunks(self) -> Iterator[Array]:
        """All rows of the table, some at a time."""
        for start in range(0, self.rows, CHUNK_ROWS):
            yield np.arange(start, min(start + CHUNK_ROWS, self.rows))

    def _shards_of(self, rows: Array) -> Array:
        return (rows + self.rotation) % self.shards

    def _positions_of(self, rows: Array) -> Array:
        return rows // self.shards + self.row_offset


def placement_of(layout: Any) -> Placement:
    """The placement that TensorFlow's ``SparseCoreTableLayout`` describes."""
    (rows, dim), (padded_rows, padded_dim) = layout.unsharded_shape, layout.unsharded_padded_shape
    return Placement(
        table=layout.table_name,
        stack=layout.stacked_table_name,
        rows=rows,
        dim=dim,
        padded_rows=padded_rows,
        padded_dim=padded_dim,
        shards=layout.num_sparse_cores,
        shard_rows=layout.total_rows_per_sparse_core_shard,
        row_offset=layout.sparse_core_shard_row_offset,
        rotation=layout.sparse_core_shard_rotation,
    )


@dataclass(frozen=True, slots=True)
class WholeTable:
    """A table that is one array of its own shape, as ``TPUEmbedding`` keeps it on its hosts. See :class:`Placement`."""

    table: str
    rows: int
    dim: int

    @property
    def stack(self) -> str:
        """The table is its own stack."""
        return self.table

    @property
    def stack_shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.dim

    def read(self, stack: Array, rows: Array) -> Array:
        """Rows of the table."""
        found: Array = stack[rows]
        return found

    def write(self, stack: Array, rows: Array, values: Array) -> None:
        """Set rows of the table."""
        stack[rows] = values

    def chunks(self) -> Iterator[Array]:
        """All rows of the table, some at a time."""
        for start in range(0, self.rows, CHUNK_ROWS):
            yield np.arange(start, min(start + CHUNK_ROWS, self.rows))
