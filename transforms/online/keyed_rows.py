"""Rows of one table by key, to which rows are added while others read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.joins.keys import number_keys
from transforms.kernels.history_order import order_by_key
from transforms.online.kernel_rows import KernelRows, TileSizes
from transforms.online.key_parts import KeyParts, Part, tiled, with_rows
from transforms.online.row_block import RowBlock, joined_blocks

#: The values of a key; a key with a null has none.
Key = tuple[object, ...]
#: So many added rows, or as many as there were, are merged with the others.
_FEWEST_MERGED = 10_000
#: The first row of the only key, and the end.
_OF_ONE_ROW = np.array([0, 1])


class _Content(NamedTuple):
    """Rows in order of keys, and the rows of keys to which rows were added.

    Attributes:
        rows: of all keys; those of keys to which rows were added are no longer read.
        numbers: of keys.
        starts: the first row of each key, and the end.
        tiles: its first tile, and the end.
        changed: the rows of keys to which rows were added.
    """

    rows: KernelRows
    numbers: dict[Key, int]
    starts: Array
    tiles: Array
    changed: dict[Key, KeyParts]

    def held(self, number: int) -> Part:
        """The rows of a key as they were when nothing was added."""
        (start, stop), (begin, end) = (one[number : number + 2].tolist() for one in (self.starts, self.tiles))
        return Part(self.rows, start, stop, begin, end)


class _Sorted(NamedTuple):
    """Rows by key and time; the first row of each key, and the end; and each key that has no null, with its number."""

    block: RowBlock
    starts: Array
    keys: list[tuple[Key, int]]


class KeyedRows:
    """The rows of each key. One thread at a time may add rows; any number may read.

    Args:
        key: the identities of the key's expressions.
        rows: the first ones.
        prepare: called with rows before they are read, so that no answer waits until their states are made.
        sizes: of tiles.
    """

    def __init__(self, key: Sequence[str], rows: RowBlock, prepare: Callable[[KernelRows], object], sizes: TileSizes) -> None:  # fmt: skip
        self._key, self._prepare, self._sizes = tuple(key), prepare, sizes
        self._keep(rows)

    def _keep(self, rows: RowBlock) -> None:
        own = self._sorted(rows)
        held, tiles = tiled(own.block, own.starts, self._sizes)
        self._prepare(held)
        self._content, self._added = _Content(held, dict(own.keys), own.starts, tiles, {}), 0

    def of(self, key: Key | None) -> KeyParts:
        """The rows of a key; those of None are none."""
        content = self._content
        if key is not None:
            if (changed := content.changed.get(key)) is not None:
                return changed
            if (number := content.numbers.get(key)) is not None:
                return (content.held(number),)
        return ()

    def add(self, rows: RowBlock) -> None:
        """Add rows, each with a key."""
        own = self._sorted(rows)
        for key, k in own.keys:
            parts = with_rows(self.of(key), own.block.part(int(own.starts[k]), int(own.starts[k + 1])), self._sizes)
            if parts[-1].rows.needs_states:
                self._prepare(parts[-1].rows)
            self._content.changed[key] = parts
        self._added += len(rows.time)

    @property
    def is_merge_due(self) -> bool:
        """Whether enough rows were added that :meth:`keep` pays."""
        return self._added >= max(_FEWEST_MERGED, len(self._content.rows.time))

    def keep(self, needed: Callable[[RowBlock], RowBlock]) -> None:
        """Keep the rows that are needed."""
        self._keep(needed(self.rows()))

    def rows(self) -> RowBlock:
        """All rows."""
        content = self._content
        same = [content.held(number).block for key, number in content.numbers.items() if key not in content.changed]
        return joined_blocks(
            [*same, *(one.block for parts in list(content.changed.values()) for one in parts)] or [content.rows.block]
        )

    @property
    def tile_bytes(self) -> int:
        """The memory of the tiles of all rows and of their states."""
        content = self._content
        return content.rows.tile_bytes + sum(
            one.rows.tile_bytes
            for parts in list(content.changed.values())
            for one in parts
            if one.rows is not content.rows
        )

    def _sorted(self, rows: RowBlock) -> _Sorted:
        columns = [rows.columns[name] for name in self._key]
        if len(rows.time) == 1:  # the usual push
            (key,) = key_values(columns)
            return _Sorted(rows, _OF_ONE_ROW, [] if key is None else [(key, 0)])
        numbers = number_keys(columns, [one.slice(0, 0) for one in columns])
        order, starts, _ = order_by_key(numbers.rows, rows.time, numbers.size)
        ordered = rows.take(order)
        used = np.flatnonzero(np.diff(starts))
        keys = key_values([ordered.columns[name].take(pa.array(starts[used])) for name in self._key])
        return _Sorted(ordered, starts, [(key, k) for key, k in zip(keys, used.tolist(), strict=True) if key is not None])  # fmt: skip


def key_values(columns: Sequence[pa.Array]) -> list[Key | None]:
    """The key of each row; None with a null."""
    plain = [(one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one).to_pylist() for one in columns]
    return [None if any(part is None for part in key) else key for key in zip(*plain, strict=True)]
