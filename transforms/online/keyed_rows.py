"""Rows of one table by key, to which rows are added while others read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from transforms.joins.keys import number_keys
from transforms.kernels.history_order import order_by_key
from transforms.online.kernel_rows import KernelRows, KeyRows
from transforms.online.row_block import RowBlock, joined_blocks

#: The values of a key; a key with a null has none.
Key = tuple[object, ...]
#: So many added rows, or as many as there were, are merged with the others.
_FEWEST_MERGED = 10_000


class _Content(NamedTuple):
    """Rows in order of keys, each key's place among them, and the rows of keys to which rows were added."""

    rows: KernelRows
    places: dict[Key, tuple[int, int]]
    changed: dict[Key, KernelRows]


class KeyedRows:
    """The rows of each key. One thread at a time may add rows; any number may read.

    Args:
        key: the identities of the key's expressions.
        rows: the first ones.
        prepare: called with no rows of others, before they are read: so that no answer waits until they are ready.
    """

    def __init__(self, key: Sequence[str], rows: RowBlock, prepare: Callable[[KeyRows], object]) -> None:
        self._key, self._prepare = tuple(key), prepare
        self._keep(rows)

    def _keep(self, rows: RowBlock) -> None:
        content = self._sorted(rows)
        self._prepare(KeyRows(content.rows, 0, 0))
        self._content, self._added = content, 0

    def of(self, key: Key | None) -> KeyRows:
        """The rows of a key, in order of time; those of None are none."""
        content = self._content
        if key is None:
            return KeyRows(content.rows, 0, 0)
        if (changed := content.changed.get(key)) is not None:
            return KeyRows(changed, 0, len(changed.time))
        return KeyRows(content.rows, *content.places.get(key, (0, 0)))

    def add(self, rows: RowBlock) -> None:
        """Add rows, each with a key."""
        own = self._sorted(rows)
        for key, place in own.places.items():
            new = own.rows.block.part(*place)
            if (before := self.of(key).block).time.size:
                new = _in_order(joined_blocks([before, new]), len(before.time))
            self._content.changed[key] = KernelRows(new)
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
        block = content.rows.block
        same = [block.part(*place) for key, place in content.places.items() if key not in content.changed]
        return joined_blocks([*same, *(one.block for one in content.changed.values())] or [block])

    def _sorted(self, rows: RowBlock) -> _Content:
        columns = [rows.columns[name] for name in self._key]
        numbers = number_keys(columns, [one.slice(0, 0) for one in columns])
        order, starts, _ = order_by_key(numbers.rows, rows.time, numbers.size)
        ordered = rows.take(order)
        used = np.flatnonzero(np.diff(starts))
        keys = key_values([ordered.columns[name].take(pa.array(starts[used])) for name in self._key])
        return _Content(KernelRows(ordered), {key: (int(starts[one]), int(starts[one + 1])) for key, one in zip(keys, used, strict=True) if key is not None}, {})  # fmt: skip


def _in_order(rows: RowBlock, at: int) -> RowBlock:
    """Rows by time, of which those before ``at`` are, and those from it on."""
    if rows.time[at - 1] <= rows.time[at]:
        return rows
    return rows.take(np.argsort(rows.time, kind="stable"))


def key_values(columns: Sequence[pa.Array]) -> list[Key | None]:
    """The key of each row; None with a null."""
    plain = [(one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one).to_pylist() for one in columns]
    return [None if any(part is None for part in key) else key for key in zip(*plain, strict=True)]
