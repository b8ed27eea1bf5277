"""The loops of a core's requests: find the rows that its bags need, and move their values in and out of messages.

A *slot* is a row that a core has asked for: its place among the slots of its table. The ids of a bag below the feature's limit share
the slot of their row; each id of the tail, beyond that limit, has a slot of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trainer.embedding.cpu.layout import FeatureLayout, TableLayout
from trainer.embedding.cpu.row_parts import copy_row
from transforms.kernels.compiled import compiled

Array = np.ndarray[Any, np.dtype[Any]]

_HASH = np.uint64(0x9E3779B97F4A7C15)


class Slots(NamedTuple):
    """The slots of a batch; those of table t begin at ``starts[t]``.

    Attributes:
        starts: int64 [tables + 1], by the most slots that a table can have.
        rows: int64, the row of each slot.
        samples: int32, the bags that have an id of this slot; an id of a sequence feature is a bag of its own.
        distinct: int64 [tables], the slots without those of the tail.
        counts: int64 [tables], all slots.
        places: int64, the slot of each id of the batch; 0 for ids after the end of a sequence.
    """

    starts: Array
    rows: Array
    samples: Array
    distinct: Array
    counts: Array
    places: Array


@compiled
def find_slots(
    chosen: Array, ids: Array, offsets: Array, features: FeatureLayout, tables: TableLayout, dense_ids: Array, slots: Slots
) -> None:  # fmt: skip
    """Find the slots of the ``chosen`` tables. ``dense_ids``: of each feature, the ids of a bag that share the slots of their rows."""
    starts, rows, samples, distinct_rows, counts, places = slots
    for t in chosen:
        base = starts[t]
        bits = 4
        while (1 << bits) < 2 * (starts[t + 1] - base):
            bits += 1
        shift, last_place = np.uint64(64 - bits), (1 << bits) - 1
        found = np.zeros(1 << bits, np.int32)
        last_bag = np.empty(starts[t + 1] - base, np.int64)
        distinct, bag, has_tail = 0, 0, False
        for f in tables.features_of[tables.first_feature[t] : tables.first_feature[t + 1]]:
            dense, sequence = dense_ids[f], features.sequence[f]
            for b in range(offsets.shape[1] - 1):
                first, last = offsets[f, b], offsets[f, b + 1]
                if sequence:
                    last = min(last, first + sequence)
                if last - first > dense:
                    last, has_tail = first + dense, True
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
        distinct_rows[t] = count = distinct
        if has_tail:
            for f in tables.features_of[tables.first_feature[t] : tables.first_feature[t + 1]]:
                dense, sequence = dense_ids[f], features.sequence[f]
                for b in range(offsets.shape[1] - 1):
                    first, last = offsets[f, b] + dense, offsets[f, b + 1]
                    if sequence:
                        last = min(last, offsets[f, b] + sequence)
                    for i in range(first, last):
                        rows[base + count] = ids[i]
                        samples[base + count] = 1
                        places[i] = count
                        count += 1
        counts[t] = count


@compiled
def count_by_owner(slots: Slots, counts: Array, ids: Array) -> None:
    """Add slots and samples to ``counts`` and ``ids``, int64 [owners, tables]; row r is the owner's with number r mod owners."""
    owners = counts.shape[0]
    for t in range(counts.shape[1]):
        for s in range(slots.starts[t], slots.starts[t] + slots.counts[t]):
            owner = slots.rows[s] % owners
            counts[owner, t] += 1
            ids[owner, t] += slots.samples[s]


@compiled
def group_by_owner(slots: Slots, ends: Array, rows: Array, places: Array) -> None:
    """Write the owner's number of each row, and its slot, owner after owner and table after table.

    ``ends``: int64 [owners, tables], where those of each owner and table begin; afterwards, where they end.
    """
    owners = ends.shape[0]
    for t in range(ends.shape[1]):
        base = slots.starts[t]
        for slot in range(slots.counts[t]):
            row = slots.rows[base + slot]
            owner = row % owners
            at = ends[owner, t]
            ends[owner, t] = at + 1
            rows[at] = row // owners
            places[at] = slot


@compiled
def put_rows(places: Array, counts: Array, tables: TableLayout, floats: Array, values: Array) -> None:
    """Write an owner's answer to the slots at ``places``, of which each table has ``counts``."""
    at, k = 0, 0
    for t in range(len(counts)):
        dim, base = tables.dims[t], tables.weight_base[t]
        for _ in range(counts[t]):
            copy_row(floats, at, values, base + places[k] * dim, dim)
            at += dim
            k += 1


@compiled
def take_rows(places: Array, counts: Array, tables: TableLayout, values: Array, floats: Array) -> None:
    """The inverse of :func:`put_rows`."""
    at, k = 0, 0
    for t in range(len(counts)):
        dim, base = tables.dims[t], tables.weight_base[t]
        for _ in range(counts[t]):
            copy_row(values, base + places[k] * dim, floats, at, dim)
            at += dim
            k += 1
