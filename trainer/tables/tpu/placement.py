"""Where the rows of a table are in the stacked, sharded arrays of SparseCore. Pure.

A stack has one shard for each SparseCore of the slice. Row r of a table is in shard ``(r + rotation) % shards``, at row
``r // shards + row_offset`` of it. Shards are padded to a multiple of rows, rows to a multiple of 8 columns.

The arrays of a stack are read and written in *parts*, one for each device that has shards of it, so that memory for them does not grow with the slice.
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
        parts: devices with equally many shards each.
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
    parts: int = 1

    def part_shape(self, part: int) -> tuple[int, ...]:
        """Shards, rows of a shard, columns."""
        return self.shards // self.parts, self.shard_rows, self.padded_dim

    def parts_of(self, rows: Array) -> Array:
        """The part that each row of the table is in."""
        found: Array = self._shards_of(rows) // (self.shards // self.parts)
        return found

    def read(self, part: int, values: Array, rows: Array) -> Array:
        """Rows of the table, [len(rows), dim], from the array of the part that they are in."""
        found: Array = values[self._shards_of(rows) - self._first_shard(part), self._positions_of(rows), : self.dim]
        return found

    def write(self, part: int, values: Array, rows: Array, written: Array) -> None:
        """Set rows of the table in the array of the part that they are in."""
        values[self._shards_of(rows) - self._first_shard(part), self._positions_of(rows), : self.dim] = written

    def chunks(self, part: int) -> Iterator[Array]:
        """All rows of the table that are in a part, ascending, some at a time."""
        for start in range(0, self.rows, CHUNK_ROWS):
            rows = np.arange(start, min(start + CHUNK_ROWS, self.rows))
            yield rows if self.parts == 1 else rows[self.parts_of(rows) == part]

    def _first_shard(self, part: int) -> int:
        return part * (self.shards // self.parts)

    def _shards_of(self, rows: Array) -> Array:
        return (rows + self.rotation) % self.shards

    def _positions_of(self, rows: Array) -> Array:
        return rows // self.shards + self.row_offset


def placement_of(layout: Any, parts: int) -> Placement:
    """The placement that TensorFlow's ``SparseCoreTableLayout`` describes, on so many devices."""
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
        parts=parts,
    )


@dataclass(frozen=True, slots=True)
class BlockedTable:
    """A table in an array of its own on each host, as ``TPUEmbedding`` keeps it: its rows in blocks. See :class:`Placement`.

    Attributes:
        table: its name.
        ends: of the rows of each host, ascending; the last one is the number of rows of the table.
        dim: its columns.
    """

    table: str
    ends: tuple[int, ...]
    dim: int

    @property
    def rows(self) -> int:
        """Of the table."""
        return self.ends[-1]

    @property
    def parts(self) -> int:
        """The hosts."""
        return len(self.ends)

    @property
    def stack(self) -> str:
        """The table is its own stack."""
        return self.table

    def part_shape(self, part: int) -> tuple[int, ...]:
        """Rows and columns."""
        return self.ends[part] - self._first(part), self.dim

    def parts_of(self, rows: Array) -> Array:
        """The part that each row of the table is in."""
        found: Array = np.searchsorted(np.array(self.ends), rows, side="right")
        return found

    def read(self, part: int, values: Array, rows: Array) -> Array:
        """Rows of the table."""
        found: Array = values[rows - self._first(part)]
        return found

    def write(self, part: int, values: Array, rows: Array, written: Array) -> None:
        """Set rows of the table."""
        values[rows - self._first(part)] = written

    def chunks(self, part: int) -> Iterator[Array]:
        """All rows of the table that are in a part, ascending, some at a time."""
        for start in range(self._first(part), self.ends[part], CHUNK_ROWS):
            yield np.arange(start, min(start + CHUNK_ROWS, self.ends[part]))

    def _first(self, part: int) -> int:
        return self.ends[part - 1] if part else 0
