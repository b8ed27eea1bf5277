"""The loops of an update: sum the gradients of each row, then update it once.

Ids become *entries*: a row, where its gradient stands, and its share of it. The entries of a table are divided into buckets by a hash
of the row, in their order, so that the distinct rows of a bucket and their sums fit a cache. Buckets are independent of each other:
threads take any of them, and each row's gradients are always added in the order feature, event, position.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trainer.tables.kernels.importance import Importance, importance_of
from trainer.tables.kernels.layout import Bags, FeatureLayout, TableLayout, TableValues
from trainer.tables.kernels.lookup import share_of_bag
from trainer.tables.kernels.row_updates import update_row
from trainer.tables.kernels.vectors import (
    LANES,
    item,
    load,
    load_as,
    prefetch,
    splat,
    splat1,
    splat4,
    splat8,
    splat_as,
    store,
    total,
)
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, pasted, uncounted

#: The state of a row that differs from its initial values.
CHANGED = 2

_HASH = np.uint64(0x9E3779B97F4A7C15)
_BUCKET_SHIFT = np.uint64(20)
#: How many entries ahead gradients are asked for, and rows ahead of their update.
_AHEAD = 8
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Entries(NamedTuple):
    """What the rows of a batch get, table after table, and bucket after bucket in a table.

    Attributes:
        rows: int64, the row of each entry in its table.
        sources: int64, where its gradient begins.
        shares: float32, its share of this gradient.
        lookups: int32, how many lookups of the row it stands for; empty: one each.
        starts: int64 [tables, most buckets + 1], where the buckets of each table begin, and where the last one ends.
    """

    rows: Array
    sources: Array
    shares: Array
    lookups: Array
    starts: Array


class Scratch(NamedTuple):
    """Memory of one thread.

    Attributes:
        places: int32, a hash table of 1 + positions in ``rows``.
        rows: int64, the distinct rows of a bucket.
        sums: float32, their summed gradients.
        lookups: int32, the lookups of each; empty: they are not counted.
    """

    places: Array
    rows: Array
    sums: Array
    lookups: Array


@pasted
def _bucket_of(row: int, mask: int) -> Any:
    """Other bits of the hash than those of the place in a hash table."""
    return np.int64((np.uint64(row) * _HASH) >> _BUCKET_SHIFT) & mask


@inlined
def _list_bag(
    ids: Array, first: int, last: int, source: int, step: int, share: np.float32, shares: Array, lookups: Array, entries: Entries,
    ends: Array, mask: int, trained: int,
) -> None:  # fmt: skip
    """Add the entries of a bag to their buckets, which end at ``ends``."""
    rows, sources, own = entries.rows, entries.sources, entries.shares
    counts = len(lookups) > 0
    for i in range(first, last):
        row = item(ids, i)
        if row < trained:
            bucket = _bucket_of(row, mask)
            at = item(ends, bucket)
            ends[bucket] = at + 1
            rows[at] = row
            sources[at] = source
            own[at] = shares[i] if len(shares) else share
            if counts:
                entries.lookups[at] = lookups[i]
        source += step


@compiled
def list_entries(
    chosen: Array, bags: Bags, lookups: Array, features: FeatureLayout, tables: TableLayout, width: int, masks: Array, entries: Entries
) -> None:  # fmt: skip
    """List the entries of the ``chosen`` tables, from ``starts[t, 0]`` on. ``masks``: of each table, its number of buckets - 1.

    ``lookups``: int32, how many lookups each id stands for; empty: one each. A gradient is ``width`` columns an event. Ids after the end of a sequence feature have none, and no row that updates leave out.
    """
    ids, offsets, shares = bags
    starts = entries.starts
    for t in chosen:
        mask, dim, trained = masks[t], tables.dims[t], tables.trained[t]
        ends = np.zeros(mask + 2, np.int64)
        if mask:
            for f in tables.features_of[tables.first_feature[t] : tables.first_feature[t + 1]]:
                for b in range(offsets.shape[1] - 1):
                    first, last = offsets[f, b], offsets[f, b + 1]
                    if features.sequence[f]:
                        last = min(last, first + features.sequence[f])
                    for i in range(first, last):
                        if ids[i] < trained:
                            ends[_bucket_of(ids[i], mask) + 1] += 1
        ends[0] = starts[t, 0]
        for k in range(1, mask + 2):
            ends[k] += ends[k - 1]
        starts[t, : mask + 2] = ends
        for f in tables.features_of[tables.first_feature[t] : tables.first_feature[t + 1]]:
            sequence = features.sequence[f]
            for b in range(offsets.shape[1] - 1):
                first, last = offsets[f, b], offsets[f, b + 1]
                source = b * width + features.column[f]
                if sequence:
                    last = min(last, first + sequence)
                    _list_bag(ids, first, last, source, dim, _ONE, shares, lookups, entries, ends, mask, trained)
                else:
                    share = share_of_bag(features.combiner[f], last - first)
                    _list_bag(ids, first, last, source, 0, share, shares, lookups, entries, ends, mask, trained)
        if not mask:
            starts[t, 1] = ends[0]


@inlined
def _add_columns(
    like: Any, gradients: Array, source: int, share: np.float32, sums: Array, at: int, is_new: bool
) -> None:
    values = load_as(gradients, source, like) * splat_as(share, like)
    store(sums, at, values if is_new else load_as(sums, at, like) + values)


@inlined
def _add_row(gradients: Array, source: int, share: np.float32, sums: Array, at: int, dim: int, is_new: bool) -> None:
    """Add a gradient times its share to the sum of a row; or write it, if the row ``is_new``."""
    d = dim - dim % LANES
    for c in range(0, d, LANES):
        _add_columns(splat(_ZERO), gradients, source + c, share, sums, at + c, is_new)
    if dim & 8:
        _add_columns(splat8(_ZERO), gradients, source + d, share, sums, at + d, is_new)
        d += 8
    if dim & 4:
        _add_columns(splat4(_ZERO), gradients, source + d, share, sums, at + d, is_new)
        d += 4
    for c in range(d, dim):
        _add_columns(splat1(_ZERO), gradients, source + c, share, sums, at + c, is_new)


@uncounted
def sum_bucket(first: int, stop: int, entries: Entries, gradients: Array, dim: int, scratch: Scratch) -> int:
    """Sum the gradients of the distinct rows of ``entries[first:stop]``; returns the number of rows."""
    places, found, sums, lookups = scratch
    counts, is_counted = len(lookups) > 0, len(entries.lookups) > 0
    bits = 4
    while (1 << bits) < 2 * (stop - first):
        bits += 1
    shift, last_place = np.uint64(64 - bits), (1 << bits) - 1
    places[: 1 << bits] = 0
    distinct = 0
    rows, sources, shares = entries.rows, entries.sources, entries.shares
    for e in range(first, stop):
        if e + _AHEAD < stop:
            source = item(sources, e + _AHEAD)
            for d in range(0, dim, LANES):
                prefetch(gradients, source + d)
            prefetch(gradients, source + dim - 1)  # it may begin inside a cache line
        row = item(rows, e)
        place = np.int64((np.uint64(row) * _HASH) >> shift)
        is_new = False
        while True:
            position = item(places, place) - 1
            if position < 0:
                places[place] = distinct + 1
                found[distinct] = row
                position = distinct
                distinct += 1
                is_new = True
                break
            if item(found, position) == row:
                break
            place = (place + 1) & last_place
        if counts:
            own = item(entries.lookups, e) if is_counted else 1
            lookups[position] = own if is_new else item(lookups, position) + own
        _add_row(gradients, item(sources, e), item(shares, e), sums, position * dim, dim, is_new)
    return distinct


@uncounted
def update_distinct(
    t: int, distinct: int, tables: TableLayout, rates: Array, values: TableValues, scratch: Scratch, importance: Importance
) -> None:  # fmt: skip
    """Update the first ``distinct`` rows of ``scratch``, which are of table ``t``, by their sums."""
    notes, counts = len(importance.values) > 0, len(scratch.lookups) > 0
    weights, slots, row_state = values
    dim, slot_dim, code, parameters = tables.dims[t], tables.slot_dims[t], tables.optimizer[t], tables.parameters
    row_base, weight_base, slot_base = tables.row_base[t], tables.weight_base[t], tables.slot_base[t]
    for n in range(distinct):
        if n + _AHEAD < distinct:
            ahead = item(scratch.rows, n + _AHEAD)
            for d in range(0, dim, LANES):
                prefetch(weights, weight_base + ahead * dim + d)
            for d in range(0, slot_dim, LANES):
                prefetch(slots, slot_base + ahead * slot_dim + d)
            prefetch(row_state, row_base + ahead)
            if notes:
                prefetch(importance.values, row_base + ahead)
        row = item(scratch.rows, n)
        if notes:
            lookups = item(scratch.lookups, n) if counts else 1
            importance.values[row_base + row] += importance_of(importance.factors, lookups, scratch.sums, n * dim, dim)
        update_row(code, parameters, t, rates[t], dim, weights, weight_base + row * dim, slots, slot_base + row * slot_dim,
                   slot_dim, scratch.sums, n * dim)  # fmt: skip
        if item(row_state, row_base + row) != CHANGED:  # a write would make its cache line move to memory again
            row_state[row_base + row] = CHANGED


@uncounted
def update_buckets(
    buckets: Array, entries: Entries, gradients: Array, tables: TableLayout, rates: Array, values: TableValues, scratch: Scratch,
    distinct_rows: Array, importance: Importance,
) -> None:  # fmt: skip
    """Update each distinct row of ``buckets``, int64 [n, 2] of tables and buckets, once.

    ``rates``: the learning rate of each table. The distinct rows of each table are added to ``distinct_rows``.
    """
    for k in range(len(buckets)):
        t = buckets[k, 0]
        first, stop = entries.starts[t, buckets[k, 1]], entries.starts[t, buckets[k, 1] + 1]
        distinct = sum_bucket(first, stop, entries, gradients, tables.dims[t], scratch)
        distinct_rows[t] += distinct
        update_distinct(t, distinct, tables, rates, values, scratch, importance)


@uncounted
def note_buckets(
    buckets: Array, entries: Entries, gradients: Array, tables: TableLayout, scratch: Scratch, distinct_rows: Array, importance: Importance
) -> None:  # fmt: skip
    """Add to the importance of each distinct row of ``buckets``; see :func:`update_buckets`."""
    for k in range(len(buckets)):
        t = buckets[k, 0]
        dim, row_base = tables.dims[t], tables.row_base[t]
        first, stop = entries.starts[t, buckets[k, 1]], entries.starts[t, buckets[k, 1] + 1]
        distinct, counts = sum_bucket(first, stop, entries, gradients, dim, scratch), len(scratch.lookups) > 0
        distinct_rows[t] += distinct
        for n in range(distinct):
            lookups = item(scratch.lookups, n) if counts else 1
            importance.values[row_base + item(scratch.rows, n)] += importance_of(
                importance.factors, lookups, scratch.sums, n * dim, dim
            )


@compiled
def sum_positions(
    chosen: Array, bags: Bags, features: FeatureLayout, tables: TableLayout, gradients: Array, width: int, sums: Array
) -> None:  # fmt: skip
    """Add the gradients of a batch whose ids are positions in compact tables to ``sums``, zeros in the layout of their weights.

    Only for the ``chosen`` tables.
    """
    ids, offsets, shares = bags
    for t in chosen:
        dim, base = tables.dims[t], tables.weight_base[t]
        for f in tables.features_of[tables.first_feature[t] : tables.first_feature[t + 1]]:
            sequence = features.sequence[f]
            for b in range(offsets.shape[1] - 1):
                first, last = offsets[f, b], offsets[f, b + 1]
                share = _ONE if sequence else share_of_bag(features.combiner[f], last - first)
                if sequence:
                    last = min(last, first + sequence)
                for i in range(first, last):
                    source = b * width + features.column[f] + (i - first) * dim * (sequence > 0)
                    own = shares[i] if len(shares) else share
                    _add_row(gradients, source, own, sums, base + ids[i] * dim, dim, False)


@compiled
def are_finite(values: Array, first: int, stop: int) -> bool:
    """Whether ``values[first:stop]``, flat float32, has neither NaN nor infinity."""
    whole = first + (stop - first) // LANES * LANES
    sums = splat(_ZERO)
    zeros = splat(_ZERO)
    for i in range(first, whole, LANES):
        sums = sums + load(values, i) * zeros
    rest = total(sums)
    for i in range(whole, stop):
        rest += values[i] * _ZERO
    return bool(rest == _ZERO)
