"""Rows of another table as columns in memory: times, and the values that joined columns are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.columns.arrays import one_array
from transforms.joins.visibility import micros


class RowBlock(NamedTuple):
    """Some rows, in any order.

    Attributes:
        time: of each row, in microseconds: int64.
        columns: values of expressions, by the identity of the expression.
        known: times from which on rows can be read, by the name of their column: int64.
    """

    time: Array
    columns: Mapping[str, pa.Array]
    known: Mapping[str, Array]

    def take(self, places: Array) -> RowBlock:
        """The rows at these places."""
        chosen = pa.array(places)
        return RowBlock(self.time[places], {name: one.take(chosen) for name, one in self.columns.items()}, {name: one[places] for name, one in self.known.items()})  # fmt: skip

    def part(self, start: int, end: int) -> RowBlock:
        """The rows from ``start`` to ``end``; nothing is copied."""
        columns = {name: one.slice(start, end - start) for name, one in self.columns.items()}
        return RowBlock(self.time[start:end], columns, {name: one[start:end] for name, one in self.known.items()})


def joined_blocks(blocks: Sequence[RowBlock]) -> RowBlock:
    """The rows of all blocks, one after the other; there must be one."""
    if len(blocks) == 1:
        return blocks[0]
    first = blocks[0]
    return RowBlock(
        np.concatenate([one.time for one in blocks]),
        {name: pa.concat_arrays([one.columns[name] for one in blocks]) for name in first.columns},
        {name: np.concatenate([one.known[name] for one in blocks]) for name in first.known},
    )


#: The name of the column of times in a table of rows, and the begin of the names of columns of ``known_at``.
TIME, KNOWN = "time", "known "


def block_of(table: pa.Table) -> RowBlock:
    """The rows of a table as :func:`table_of` makes it."""
    known = {name.removeprefix(KNOWN): micros(table[name]) for name in table.column_names if name.startswith(KNOWN)}
    columns = {
        name: one_array(table[name]) for name in table.column_names if name != TIME and not name.startswith(KNOWN)
    }
    return RowBlock(micros(table[TIME]), columns, known)
