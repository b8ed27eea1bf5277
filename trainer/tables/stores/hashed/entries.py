"""The loops that change the hash tables of an index, each entry kept in the undo log first."""

from __future__ import annotations

import numpy as np

from trainer.tables.kernels.undo_kernels import HEAD, ITEM_HEAD, ITEMS, put_start
from trainer.tables.kernels.vectors import prefetch, release
from trainer.tables.stores.hashed.find import hash_of, id_of
from trainer.tables.stores.hashed.index_layout import NEEDS_REBUILD, RECORD, IndexLayout, IndexValues
from transforms.arrays import Array
from transforms.kernels.compiled import inlined, uncounted

#: The numbers of the log for an entry.
ENTRY_NUMBERS = ITEM_HEAD + 1


@inlined
def set_entry(at: int, entry: int, index: IndexValues, log: Array, block: int, room: int) -> None:
    """Change an entry; one that the log has no space for makes the index one to rebuild, if the process is killed."""
    items = int(log[block + ITEMS])
    if items < room:
        start = block + HEAD + items * ENTRY_NUMBERS
        put_start(log, start, at)
        log[start + ITEM_HEAD] = index.entries[at]
        log[block + ITEMS] = items + 1
    else:
        index.marks[NEEDS_REBUILD] = 1
    release()
    index.entries[at] = entry


@uncounted
def ask_for_cluster(t: int, row: int, layout: IndexLayout, index: IndexValues) -> None:
    """Ask for the records of the entries from the home of an id on: a removal reads them."""
    high, _ = hash_of(layout.keys[t], row)
    count, first = layout.entries[t], layout.first_entry[t]
    mask, at = (np.int64(1) << layout.place_bits[t]) - 1, (high * count) >> 32
    for _ in range(32):
        entry = int(index.entries[first + at])
        if entry == 0:
            break
        prefetch(index.records, (layout.first_place[t] + (entry & mask) - 1) * RECORD)
        at += 1
        if at == count:
            at = 0


@uncounted
def remove_entry(t: int, at: int, layout: IndexLayout, index: IndexValues, log: Array, block: int, room: int) -> bool:
    """Free the entry at ``at``, and move those after it back that were put behind it. False: the index is damaged."""
    count, first, record = layout.entries[t], layout.first_entry[t], layout.first_place[t] * RECORD
    mask = (np.int64(1) << layout.place_bits[t]) - 1
    hole, ahead = at, at
    for _ in range(count):
        ahead += 1
        if ahead == count:
            ahead = 0
        entry = int(index.entries[first + ahead])
        if entry == 0:
            set_entry(first + hole, 0, index, log, block, room)
            return True
        place = (entry & mask) - 1
        if place < 0 or place >= layout.places[t]:
            return False
        high, _ = hash_of(layout.keys[t], id_of(index.records, record + place * RECORD))
        home = (high * layout.entries[t]) >> 32
        # It stays if its home is behind the hole, in the circle of entries.
        distance = ahead - home if ahead >= home else ahead - home + count
        gap = ahead - hole if ahead >= hole else ahead - hole + count
        if distance >= gap:
            set_entry(first + hole, entry, index, log, block, room)
            hole = ahead
    return False


@uncounted
def add_entry(
    t: int, row: int, place: int, layout: IndexLayout, index: IndexValues, log: Array, block: int, room: int
) -> bool:
    """Put an id that has no entry into the hash table of its table. False: the index is damaged."""
    high, low = hash_of(layout.keys[t], row)
    count, first = layout.entries[t], layout.first_entry[t]
    mask = (np.int64(1) << layout.place_bits[t]) - 1
    at = (high * count) >> 32
    for _ in range(count):
        if index.entries[first + at] == 0:
            set_entry(first + at, (low & ~mask) | (place + 1), index, log, block, room)
            return True
        at += 1
        if at == count:
            at = 0
    return False
