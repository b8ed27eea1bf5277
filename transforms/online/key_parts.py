"""The rows of a key as parts, one after the other in time, so that a pushed row costs a few rows and not all of its key.

A new row joins the last part while that is short; a late one takes the rows after it along. Parts are merged as their sizes become alike, so that a key has few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from transforms.arrays import Array
from transforms.kernels.history_tiles import tiles_of
from transforms.kernels.spans import frozen
from transforms.online.kernel_rows import KernelRows, TileSizes
from transforms.online.row_block import RowBlock, joined_blocks

#: A part is merged with the one before it unless that has so many times its rows.
_SHRINKAGE = 4


class Part(NamedTuple):
    """Rows of a key: those of ``rows`` from ``start`` to ``stop``, in order of time, and the tiles from ``begin`` to ``end``."""

    rows: KernelRows
    start: int
    stop: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    @property
    def first_micros(self) -> int:
        """The first time."""
        return int(self.rows.time[self.start])

    @property
    def last_micros(self) -> int:
        """The last time."""
        return int(self.rows.time[self.stop - 1])

    @property
    def block(self) -> RowBlock:
        """The rows alone."""
        return self.rows.block.part(self.start, self.stop)

    @classmethod
    def all_of(cls, rows: KernelRows) -> Part:
        """All rows and tiles."""
        return cls(rows, 0, len(rows.time), 0, len(rows.bounds))


#: The parts of a key; the rows of each are earlier than those of the next one.
KeyParts: TypeAlias = tuple[Part, ...]


def tiled(block: RowBlock, starts: Array, sizes: TileSizes) -> tuple[KernelRows, Array]:
    """Rows with their tiles, and the first tile of each key, and the end. ``starts``: the first row of each key, and the end."""
    bounds, of_keys = tiles_of(starts, frozen(block.time), 0, sizes.least, sizes.most)
    return KernelRows(block, bounds), of_keys


def with_rows(parts: KeyParts, new: RowBlock, sizes: TileSizes) -> KeyParts:
    """The parts after rows were added, which are in order of time; rows of one time are in the order in which they were added."""
    since, kept = int(new.time[0]), list(parts)
    moved: list[RowBlock] = []
    while kept and kept[-1].last_micros >= since:
        part = kept.pop()
        cut = part.start + int(np.searchsorted(part.rows.time[part.start : part.stop], since))
        moved.insert(0, part.rows.block.part(cut, part.stop))
        if cut > part.start:
            kept.append(part._replace(stop=cut))
            break
    last = Part.all_of(_untiled_or_tiled(_in_order([*moved, new]), sizes))
    while kept and _are_alike(kept[-1], last, sizes):
        last = _merged(kept.pop(), last, sizes)
    kept.append(last)
    return tuple(_apart(kept, k) for k in range(len(kept)))


def _in_order(blocks: Sequence[RowBlock]) -> RowBlock:
    rows = joined_blocks(blocks)
    if len(blocks) == 1:
        return rows
    return rows.take(np.argsort(rows.time, kind="stable"))


def _untiled_or_tiled(block: RowBlock, sizes: TileSizes) -> KernelRows:
    size = len(block.time)
    return KernelRows(block) if size < sizes.untiled else tiled(block, np.array([0, size]), sizes)[0]


def _are_alike(before: Part, last: Part, sizes: TileSizes) -> bool:
    """Whether two parts are better one."""
    return before.size < sizes.untiled or (last.size >= sizes.untiled and before.size < _SHRINKAGE * last.size)


def _merged(before: Part, last: Part, sizes: TileSizes) -> Part:
    """Both as one, with the tiles of the earlier one that hold none of the later rows; the rows after these get tiles where they are many."""
    before = _without_tiles_that_hold(before, last.first_micros)
    block = joined_blocks([before.block, last.block])
    bounds = before.rows.bounds[before.begin : before.end] - before.start
    tail = int(bounds[-1, 1]) if len(bounds) else 0
    if len(block.time) - tail >= sizes.untiled:
        added, _ = tiles_of(np.array([0, len(block.time)]), frozen(block.time), tail, sizes.least, sizes.most)
        bounds = np.concatenate([bounds, added])
    return Part.all_of(KernelRows(block, bounds, before.rows.part_of_states(before.begin, before.end)))


def _apart(parts: Sequence[Part], k: int) -> Part:
    """A part without tiles that hold rows of its neighbours: those would be no parts of the trie of all."""
    part = parts[k]
    if k + 1 < len(parts):
        part = _without_tiles_that_hold(part, parts[k + 1].first_micros)
    if k and part.begin < part.end and _holds(part, part.begin, parts[k - 1].last_micros):
        part = part._replace(begin=part.begin + 1)
    return part


def _without_tiles_that_hold(part: Part, later_micros: int) -> Part:
    """A part without tiles of rows after its last one, or of the time of a later row, which only the last one can hold."""
    ends = part.rows.bounds[part.begin : part.end, 1]
    end = part.begin + int(np.searchsorted(ends, part.stop, "right"))
    if end > part.begin and _holds(part, end - 1, later_micros):
        end -= 1
    return part._replace(end=end)


def _holds(part: Part, tile: int, micros: int) -> bool:
    """Whether a time agrees with those of a tile in all bits in which these agree."""
    first, last = (int(part.rows.time[row]) for row in (part.rows.bounds[tile, 0], part.rows.bounds[tile, 1] - 1))
    return _differ(first, micros) <= _differ(first, last)


def _differ(a: int, b: int) -> int:
    """The place of the highest bit that differs, from 1 on; 0 for none."""
    return ((a ^ b) & (1 << 64) - 1).bit_length()
