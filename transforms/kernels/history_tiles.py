"""States of whole parts of a history, so that an event need not look at each row.

A tile is a node of the trie of a key with at most a number of rows, or the rows of one time if they are more: rows whose times agree in all but their lowest
bits. It is a part of the trie of whatever rows an event sees, as long as it holds no other ones; so its state is one of the states that are folded.
"""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_ALL = np.uint64((1 << 64) - 1)


def tiles_of(starts: Array, time: Array, begin: int, least: int, most: int) -> tuple[Array, Array]:
    """The first row of each tile and the row after its last one, int64 [tiles, 2]; and the first tile of each key, and the end: int64.

    Args:
        starts: the first row of each key, and the end: int64.
        time: of each row, ascending within a key: int64.
        begin: rows before this one, which has a later time, are in no tile.
        least: fewer rows are no tile.
        most: the most rows of a tile with several times; of a long key as many as the root of its rows, so that neither tiles nor the rows of one are very many.
    """
    bounds, of_keys = np.empty(((len(time) - begin) // least, 2), np.int64), np.empty(len(starts), np.int64)
    tiles = _write_tiles(starts, time, begin, least, most, bounds, of_keys)
    return bounds[:tiles].copy(), of_keys


@compiled
def _write_tiles(starts: Array, time: Array, begin: int, least: int, most: int, bounds: Array, of_keys: Array) -> int:  # fmt: skip
    tiles = 0
    for key in range(len(starts) - 1):
        of_keys[key] = tiles
        first, stop = max(starts[key], begin), starts[key + 1]
        size = max(most, int(np.sqrt(stop - starts[key])))
        while stop - first >= least:
            here = np.uint64(time[first])
            # Times of a tile differ from its first one by no higher bits: so that the row before it and the one after as many rows as it may have are not in it.
            differ = _ALL
            if first > starts[key]:
                differ = _below_highest_bit(here ^ np.uint64(time[first - 1]))
            if first + size < stop:
                differ = min(differ, _below_highest_bit(here ^ np.uint64(time[first + size])))
            end = first + 1
            while end < stop and here ^ np.uint64(time[end]) <= differ:
                end += 1
            if end - first >= least:
                bounds[tiles, 0], bounds[tiles, 1] = first, end
                tiles += 1
            first = end
    of_keys[len(starts) - 1] = tiles
    return tiles


@compiled
def _below_highest_bit(word: np.uint64) -> np.uint64:
    """The number of all bits below the highest one that is set; 0 for 0."""
    for shift in (1, 2, 4, 8, 16, 32):
        word |= word >> np.uint64(shift)
    return word >> np.uint64(1)
