"""The requests of a core for a batch in one compiled call: what :mod:`~trainer.tables.routes.partitioned.requests` does in steps, with its loops.

For a batch of few ids the calls between these loops take longer than the loops.
"""

from __future__ import annotations

import numpy as np

from trainer.tables.kernels.layout import FeatureLayout, TableLayout
from trainer.tables.routes.partitioned.request_kernels import (
    Slots,
    count_by_owner,
    find_slots,
    group_by_owner,
    number_ids,
)
from trainer.tables.routes.partitioned.slot_order import order_slots
from trainer.tables.routes.partitioned.table_parts import PartLayout
from transforms.arrays import Array
from transforms.kernels.compiled import compiled


@compiled
def find_requests(
    ids: Array, offsets: Array, features: FeatureLayout, tables: TableLayout, parts: PartLayout, readers: Array, owners: int,
    deduplicates: bool, ascending: bool,
) -> tuple[Array, Array, Array, Array, Array, Array, Array, Array, Array, Array]:  # fmt: skip
    """The slots of a (checked) batch, and the rows that each owner is asked for.

    Args:
        readers: of each replicated part, the core that is asked.
        owners: their number.
        deduplicates, ascending: see :class:`~trainer.tables.routes.partitioned.requests.RequestMaker`.

    Returns:
        The slot of each id; the slots of each table; of :class:`~trainer.tables.routes.partitioned.requests.RowsByOwner` the rows, places,
        counts, ids and ends; where the values of the parts of slots begin; and where the slots of each table begin, and their values.
    """
    size, of_parts = len(tables.dims), len(parts.table)
    starts = np.zeros(size + 1, np.int64)
    for f in range(offsets.shape[0]):
        starts[features.table[f] + 1] += offsets[f, offsets.shape[1] - 1] - offsets[f, 0]
    for t in range(size):
        starts[t + 1] += starts[t]
    total = starts[size]
    slots = Slots(
        starts, np.empty(total, np.int64), np.empty(total, np.int32), np.zeros(size, np.int64), np.zeros(len(ids), np.int64),
        np.empty(total if ascending else 0, np.int32),
    )  # fmt: skip
    every = np.arange(size)
    if deduplicates:
        find_slots(every, ids, offsets, features, tables, slots)
    else:
        number_ids(every, ids, offsets, features, tables, slots)
    if ascending:
        order_slots(every, slots.starts, slots.rows, slots.counts, slots.order)
    counts, samples = np.zeros((owners, of_parts), np.int64), np.zeros((owners, of_parts), np.int64)
    count_by_owner(slots, parts, readers, False, counts, samples)
    begins, ends, asked = np.empty((owners, of_parts), np.int64), np.empty(owners, np.int64), 0
    for owner in range(owners):
        for p in range(of_parts):
            begins[owner, p] = asked
            asked += counts[owner, p]
        ends[owner] = asked
    rows, places = np.empty(asked, np.int64), np.empty(asked, np.int64)
    group_by_owner(slots, parts, readers, False, begins, rows, places)
    bases, row_base, weight_base = _bases_of(slots.counts, tables, parts)
    return slots.places, slots.counts, rows, places, counts, samples, ends, bases, row_base, weight_base


@compiled
def _bases_of(sizes: Array, tables: TableLayout, parts: PartLayout) -> tuple[Array, Array, Array]:
    """Where the values of slot 0 of each part begin, and the slots and values of each table, which come after those of the table before."""
    row_base, weight_base = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64)
    row, at = 0, 0
    for t in range(len(sizes)):
        row_base[t], weight_base[t] = row, at
        row += sizes[t]
        at += sizes[t] * tables.dims[t]
    bases = np.empty(len(parts.table), np.int64)
    for p in range(len(parts.table)):
        bases[p] = weight_base[parts.table[p]] + parts.column[p]
    return bases, row_base, weight_base
