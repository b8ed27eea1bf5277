"""The loops of a core's requests: find the rows that its bags need, and move their values in and out of messages.

A *slot* is a row that a core has asked for: its place among the slots of its table. The ids of a bag below the feature's limit share
the slot of their row; each id of the tail, beyond that limit, has a slot of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainer.tables.kernels.layout import Bags, FeatureLayout, TableLayout
from trainer.tables.kernels.row_parts import copy_row
from trainer.tables.routes.partitioned.table_parts import BLOCKS, REPLICATED, PartLayout
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined

_HASH = np.uint64(0x9E3779B97F4A7C15)


class Slots(NamedTuple):
    """The slots of a batch; those of table t begin at ``starts[t]``.

    Attributes:
        starts: int64 [tables + 1], by the most slots that a table can have.
        rows: int64, the row of each slot.
        samples: int32, the bags that have an id of this slot; an id of a sequence feature is a bag of its own.
        counts: int64 [tables], the slots.
        places: int64, the slot of each id of the batch; 0 for ids after the end of a sequence.
        order: int32, the slots of each table as they are asked for; empty: in their order.
    """

    starts: Array
    rows: Array
    samples: Array
    counts: Array
    places: Array
    order: Array


class PartValues(NamedTuple):
    """Where the values of the parts of slots stand; few arrays, since its kernels are called for each owner.

    Attributes:
        dims: int64, the columns of each part.
        widths: int64, the columns of its table.
        bases: int64, where its values of slot 0 begin.
    """

    dims: Array
    widths: Array
    bases: Array


@compiled
def find_slots(
    chosen: Array, ids: Array, offsets: Array, features: FeatureLayout, tables: TableLayout, slots: Slots
) -> None:
    """Find the slots of the ``chosen`` tables: one for each distinct row."""
    starts, rows, samples, counts, places, _ = slots
    for t in chosen:
        base = starts[t]
        bits = 4
        while (1 << bits) < 2 * (starts[t + 1] - base):
            bits += 1
        shift, last_place = np.uint64(64 - bits), (1 << bits) - 1
        found = np.zeros(1 << bits, np.int32)
        last_bag = np.empty(starts[t + 1] - base, np.int64)
        distinct, bag = 0, 0
        for f in tables.features_of[tables.first_feature[t] : tables.first_feature[t + 1]]:
            sequence = features.sequence[f]
            for b in range(offsets.shape[1] - 1):
                first, last = offsets[f, b], offsets[f, b + 1]
                if sequence:
                    last = min(last, first + sequence)
                bag += 1
                for i in range(first, last):
                    bag += sequence > 0
                    row = ids[i]
                    place = np.int64((np.uint64(row) * _HASH) >> shift)
                    while True:
                        slot = found[place] - 1
                        if slot < 0:
                            found[place] = distinct + 1
                            slot = distinct
                            rows[base + slot] = row
                            samples[base + slot] = 1
                            last_bag[slot] = bag
                            distinct += 1
                            break
                        if rows[base + slot] == row:
                            samples[base + slot] += last_bag[slot] != bag
                            last_bag[slot] = bag
                            break
                        place = (place + 1) & last_place
                    places[i] = slot
        counts[t] = distinct


@compiled
def number_ids(
    chosen: Array, ids: Array, offsets: Array, features: FeatureLayout, tables: TableLayout, slots: Slots
) -> None:
    """As :func:`find_slots`, with a slot for each id."""
    starts, rows, samples, counts, places, _ = slots
    for t in chosen:
        base, count = starts[t], 0
        for f in tables.features_of[tables.first_feature[t] : tables.first_feature[t + 1]]:
            sequence = features.sequence[f]
            for b in range(offsets.shape[1] - 1):
                first, last = offsets[f, b], offsets[f, b + 1]
                if sequence:
                    last = min(last, first + sequence)
                for i in range(first, last):
                    rows[base + count] = ids[i]
                    samples[base + count] = 1
                    places[i] = count
                    count += 1
        counts[t] = count


@inlined
def _place_of(row: int, first: int, stop: int, kind: int, parts: PartLayout) -> int:
    """Where the core with ``row`` stands in ``cores``, between ``first`` and ``stop``, for a part that is not replicated."""
    if kind != BLOCKS:
        return first + row % (stop - first)
    low, high = first, stop - 1
    while low < high:
        middle = (low + high) // 2
        if row < parts.row_ends[middle]:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def _own_row(row: int, place: int, first: int, stop: int, kind: int, parts: PartLayout) -> int:
    """The number of ``row`` on its core, which stands at ``place``."""
    if kind != BLOCKS:
        return row // (stop - first)
    return row - parts.row_ends[place - 1] if place > first else row


@compiled
def count_by_owner(slots: Slots, parts: PartLayout, readers: Array, to_all: bool, counts: Array, ids: Array) -> None:
    """Add slots and samples to ``counts`` and ``ids``, int64 [owners, parts].

    Args:
        readers: of each replicated part, the core that is asked.
        to_all: all cores of a replicated part are asked.
    """
    for p in range(counts.shape[1]):
        t, kind, first, stop = parts.table[p], parts.kind[p], parts.first_core[p], parts.first_core[p + 1]
        for s in range(slots.starts[t], slots.starts[t] + slots.counts[t]):
            if kind != REPLICATED:
                owner = parts.cores[_place_of(slots.rows[s], first, stop, kind, parts)]
                counts[owner, p] += 1
                ids[owner, p] += slots.samples[s]
            elif to_all:
                for owner in parts.cores[first:stop]:
                    counts[owner, p] += 1
                    ids[owner, p] += slots.samples[s]
            else:
                counts[readers[p], p] += 1
                ids[readers[p], p] += slots.samples[s]


@inlined
def _put_slot(row: int, slot: int, at: int, rows: Array, places: Array) -> None:
    rows[at] = row
    places[at] = slot


@compiled
def group_by_owner(
    slots: Slots, parts: PartLayout, readers: Array, to_all: bool, ends: Array, rows: Array, places: Array
) -> None:  # fmt: skip
    """Write the owner's number of each row, and its slot, owner after owner and part after part.

    ``ends``: int64 [owners, parts], where those of each owner and part begin; afterwards, where they end. Others: as in
    :func:`count_by_owner`.
    """
    is_ordered = len(slots.order) > 0
    for p in range(ends.shape[1]):
        t, kind, first, stop = parts.table[p], parts.kind[p], parts.first_core[p], parts.first_core[p + 1]
        base = slots.starts[t]
        for k in range(slots.counts[t]):
            slot = slots.order[base + k] if is_ordered else k
            row = slots.rows[base + slot]
            if kind != REPLICATED:
                place = _place_of(row, first, stop, kind, parts)
                owner = parts.cores[place]
                _put_slot(_own_row(row, place, first, stop, kind, parts), slot, ends[owner, p], rows, places)
                ends[owner, p] += 1
            elif to_all:
                for owner in parts.cores[first:stop]:
                    _put_slot(row, slot, ends[owner, p], rows, places)
                    ends[owner, p] += 1
            else:
                _put_slot(row, slot, ends[readers[p], p], rows, places)
                ends[readers[p], p] += 1


@compiled
def count_lookups(bags: Bags, features: FeatureLayout, tables: TableLayout, lookups: Array) -> None:
    """Add the lookups of each slot of a batch to ``lookups``, whole numbers in the layout of the rows of compact ``tables``."""
    ids, offsets, _ = bags
    for f in range(offsets.shape[0]):
        base, sequence = tables.row_base[features.table[f]], features.sequence[f]
        for b in range(offsets.shape[1] - 1):
            first, last = offsets[f, b], offsets[f, b + 1]
            if sequence:
                last = min(last, first + sequence)
            for i in range(first, last):
                lookups[base + ids[i]] += 1


@compiled
def put_rows(places: Array, counts: Array, parts: PartValues, floats: Array, values: Array) -> None:
    """Write an owner's answer to the slots at ``places``, of which each part has ``counts``."""
    at, k = 0, 0
    for p in range(len(counts)):
        dim, width, base = parts.dims[p], parts.widths[p], parts.bases[p]
        for _ in range(counts[p]):
            copy_row(floats, at, values, base + places[k] * width, dim)
            at += dim
            k += 1


@compiled
def take_rows(places: Array, counts: Array, parts: PartValues, values: Array, floats: Array) -> None:
    """The inverse of :func:`put_rows`."""
    at, k = 0, 0
    for p in range(len(counts)):
        dim, width, base = parts.dims[p], parts.widths[p], parts.bases[p]
        for _ in range(counts[p]):
            copy_row(values, base + places[k] * width, floats, at, dim)
            at += dim
            k += 1
