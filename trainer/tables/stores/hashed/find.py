"""The loops that find ids in an index, and sort the ids of a batch.

What the memory of an index says is checked before it is a position: a damaged index is reported, as -2 or False, and never
followed.
"""

from __future__ import annotations

import numpy as np

from trainer.tables.kernels.initial_rows import mix
from trainer.tables.kernels.vectors import prefetch
from trainer.tables.stores.hashed.index_layout import ID_HIGH, ID_LOW, RECORD, IndexLayout, IndexValues
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, uncounted

#: What is found in place of a place: the id has none, or the index is damaged.
MISSING, DAMAGED = -1, -2
#: How many ids ahead of their use entries and records are asked for.
_ENTRY_AHEAD, _RECORD_AHEAD = 16, 8
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)
#: Up to so many ids are sorted one by one.
_FEW = 32


@inlined
def hash_of(key: np.uint64, row: int) -> tuple[int, int]:
    """The upper and the lower 32 bits of the hash of an id."""
    mixed = mix(np.uint64(row) ^ key)
    return int(np.int64(mixed >> _HIGH)), int(np.int64(mixed & _LOW))


@inlined
def id_of(records: Array, at: int) -> int:
    """The id of the record at ``at``."""
    return int(records[at + ID_LOW]) | (int(records[at + ID_HIGH]) << 32)


@uncounted
def find_entry(t: int, row: int, layout: IndexLayout, index: IndexValues) -> int:
    """The entry of an id in the hash table of its table; :data:`MISSING` or :data:`DAMAGED`."""
    high, low = hash_of(layout.keys[t], row)
    count, first, bits = layout.entries[t], layout.first_entry[t], layout.place_bits[t]
    record = layout.first_place[t] * RECORD
    mask = (np.int64(1) << bits) - 1
    wanted, at = low & ~mask, (high * count) >> 32
    entries, records = index.entries, index.records
    for _ in range(count):
        entry = int(entries[first + at])
        if entry == 0:
            return -1
        if entry & ~mask == wanted:
            place = (entry & mask) - 1
            if place < 0 or place >= layout.places[t]:
                return -2
            if id_of(records, record + place * RECORD) == row:
                return int(at)
        at += 1
        if at == count:
            at = 0
    return -2


@inlined
def place_at(t: int, entry: int, layout: IndexLayout, index: IndexValues) -> int:
    """The place of an entry that :func:`find_entry` found."""
    mask = (np.int64(1) << layout.place_bits[t]) - 1
    return int((int(index.entries[layout.first_entry[t] + entry]) & mask) - 1)


@inlined
def _ask_for_entry(t: int, row: int, layout: IndexLayout, index: IndexValues) -> None:
    high, _ = hash_of(layout.keys[t], row)
    prefetch(index.entries, layout.first_entry[t] + ((high * layout.entries[t]) >> 32))


@inlined
def _ask_for_record(t: int, row: int, layout: IndexLayout, index: IndexValues) -> None:
    """Ask for the record that an id probably has: that of the first entry with its part of the hash."""
    high, low = hash_of(layout.keys[t], row)
    count, first = layout.entries[t], layout.first_entry[t]
    mask = (np.int64(1) << layout.place_bits[t]) - 1
    wanted, at = low & ~mask, (high * count) >> 32
    for _ in range(16):
        entry = int(index.entries[first + at])
        if entry == 0:
            break
        if entry & ~mask == wanted:
            start = (layout.first_place[t] + (entry & mask) - 1) * RECORD
            prefetch(index.records, start)
            prefetch(index.records, start + RECORD - 1)
            break
        at += 1
        if at == count:
            at = 0


@compiled
def find_places(ids: Array, starts: Array, layout: IndexLayout, index: IndexValues, places: Array) -> bool:
    """Write the place of each id, or :data:`MISSING`; of table t are ``ids[starts[t]:starts[t + 1]]``. False: the index is damaged."""
    for t in range(len(starts) - 1):
        stop = starts[t + 1]
        for k in range(starts[t], stop):
            if k + _ENTRY_AHEAD < stop:
                _ask_for_entry(t, ids[k + _ENTRY_AHEAD], layout, index)
            if k + _RECORD_AHEAD < stop:
                _ask_for_record(t, ids[k + _RECORD_AHEAD], layout, index)
            entry = find_entry(t, ids[k], layout, index)
            if entry == DAMAGED:
                return False
            places[k] = MISSING if entry < 0 else place_at(t, entry, layout, index)
    return True


@compiled
def sort_by(keys: Array, order: Array, keys_2: Array, order_2: Array, first: int, stop: int) -> None:
    """Sort ``keys[first:stop]``, int64 >= 0, and ``order`` with them; equal keys stay in order. The other two arrays are scratch."""
    if stop - first <= _FEW:
        for k in range(first + 1, stop):
            key, one, at = keys[k], order[k], k
            while at > first and keys[at - 1] > key:
                keys[at], order[at] = keys[at - 1], order[at - 1]
                at -= 1
            keys[at], order[at] = key, one
        return
    different = np.int64(0)
    for k in range(first, stop):
        different |= keys[k] ^ keys[first]
    ends = np.zeros(257, np.int64)
    is_swapped = False
    for shift in range(0, 64, 8):
        if (different >> shift) & 255 == 0:
            continue
        ends[:] = 0
        ends[0] = first
        for k in range(first, stop):
            ends[((keys[k] >> shift) & 255) + 1] += 1
        for d in range(1, 257):
            ends[d] += ends[d - 1]
        for k in range(first, stop):
            digit = (keys[k] >> shift) & 255
            at = ends[digit]
            ends[digit] = at + 1
            keys_2[at], order_2[at] = keys[k], order[k]
        keys, keys_2, order, order_2 = keys_2, keys, order_2, order
        is_swapped = not is_swapped
    if is_swapped:
        keys_2[first:stop] = keys[first:stop]
        order_2[first:stop] = order[first:stop]


@compiled
def sort_distinct(
    ids: Array, starts: Array, sorted_ids: Array, order: Array, scratch: Array, scratch_2: Array, distinct: Array, distinct_starts: Array,
    numbers: Array,
) -> None:  # fmt: skip
    """The distinct ids of each table, ascending, and for each id the position of its own among these.

    ``sorted_ids``, ``order`` and the scratch arrays have the size of ``ids``.
    """
    used = 0
    for t in range(len(starts) - 1):
        first, stop = starts[t], starts[t + 1]
        distinct_starts[t] = used
        is_ascending = True
        for k in range(first + 1, stop):
            if ids[k] <= ids[k - 1]:
                is_ascending = False
                break
        if is_ascending:
            for k in range(first, stop):
                distinct[used], numbers[k] = ids[k], used
                used += 1
            continue
        for k in range(first, stop):
            sorted_ids[k], order[k] = ids[k], k
        sort_by(sorted_ids, order, scratch, scratch_2, first, stop)
        for k in range(first, stop):
            if k == first or sorted_ids[k] != sorted_ids[k - 1]:
                distinct[used] = sorted_ids[k]
                used += 1
            numbers[order[k]] = used - 1
    distinct_starts[len(starts) - 1] = used
