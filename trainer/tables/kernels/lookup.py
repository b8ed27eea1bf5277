"""The loops of a lookup: weigh the ids of a batch, combine the rows of its bags.

Arguments are described in :mod:`trainer.tables.kernels.layout`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.tables.kernels.initial_rows import initialise_row
from trainer.tables.kernels.layout import MEAN, SQRTN, SUM, Bags, FeatureLayout, TableLayout, TableValues
from trainer.tables.kernels.vectors import (
    LANES,
    acquire,
    clip,
    floor,
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
    stream,
)
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, uncounted

#: How many ids ahead of their use rows are asked for.
_AHEAD = 16
_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)


@compiled
def shares_of(id_weights: Array, offsets: Array, combiner: Array) -> Array:
    """The share of each id of a weighted batch: its weight, for a mean or sqrtn divided as in ``tf.nn.embedding_lookup_sparse``.

    Ids of a bag whose divisor is 0 have share 0.
    """
    shares = id_weights.copy()
    features, ends = offsets.shape
    for f in range(features):
        if combiner[f] == SUM:
            continue
        for b in range(ends - 1):
            divisor = _ZERO
            for i in range(offsets[f, b], offsets[f, b + 1]):
                divisor += id_weights[i] * id_weights[i] if combiner[f] == SQRTN else id_weights[i]
            if combiner[f] == SQRTN:
                divisor = np.sqrt(divisor)
            for i in range(offsets[f, b], offsets[f, b + 1]):
                shares[i] = id_weights[i] / divisor if divisor != 0 else _ZERO
    return shares


@inlined
def share_of_bag(combiner: int, ids: int) -> np.float32:
    """The share of each id of a bag of so many ids without weights."""
    if combiner == SUM or ids < 2:
        return _ONE
    return _ONE / np.float32(ids) if combiner == MEAN else _ONE / np.sqrt(np.float32(ids))


@inlined
def _read_columns(
    like: Any, weights: Array, w: int, out: Array, at: int, share: np.float32, limits: tuple[np.float32, np.float32, np.float32],
    adds: bool,
) -> None:  # fmt: skip
    values = load_as(weights, w, like)
    if limits[2] != _ZERO:
        lower, upper, quantum = splat_as(limits[0], like), splat_as(limits[1], like), splat_as(limits[2], like)
        values = floor((clip(values, lower, upper) - lower) / quantum + splat_as(_HALF, like)) * quantum + lower
    values = values * splat_as(share, like)
    store(out, at, load_as(out, at, like) + values if adds else values)


@inlined
def _read_row(
    weights: Array, w: int, out: Array, at: int, dim: int, share: np.float32, limits: tuple[np.float32, np.float32, np.float32], adds: bool
) -> None:  # fmt: skip
    """Write a row times its share, quantized, to ``out``; or add it, if ``adds``."""
    d = dim - dim % LANES
    for c in range(0, d, LANES):
        _read_columns(splat(_ZERO), weights, w + c, out, at + c, share, limits, adds)
    if dim & 8:
        _read_columns(splat8(_ZERO), weights, w + d, out, at + d, share, limits, adds)
        d += 8
    if dim & 4:
        _read_columns(splat4(_ZERO), weights, w + d, out, at + d, share, limits, adds)
        d += 4
    for c in range(d, dim):
        _read_columns(splat1(_ZERO), weights, w + c, out, at + c, share, limits, adds)


@inlined
def _ask_for_row(row: int, base: int, dim: int, weights: Array) -> None:
    """Bring a row into the cache."""
    start = base + row * dim
    for d in range(0, dim, LANES):
        prefetch(weights, start + d)
    if dim % LANES:
        prefetch(weights, start + dim - 1)  # a row of other widths may end in one line more


@inlined
def _initialise_new_rows(
    ids: Array, first: int, last: int, t: int, base: int, dim: int, tables: TableLayout, values: TableValues
) -> None:  # fmt: skip
    """Initialise the rows of ``ids[first:last]`` that were never read.

    A row whose last weight is not zero has its values: its state, which is in no cache, is not read.
    """
    weights = values.weights
    for i in range(first, last):
        row = item(ids, i)
        if item(weights, base + row * dim + dim - 1) == _ZERO and values.row_state[tables.row_base[t] + row] == 0:
            initialise_row(t, row, tables, values)
    acquire()


@inlined
def _sum_columns(
    like: Any, ids: Array, first: int, last: int, base: int, weights: Array, dim: int, share: np.float32, out: Array, at: int,
    streams: bool,
) -> None:  # fmt: skip
    values = load_as(weights, base + item(ids, first) * dim, like)
    for i in range(first + 1, last):
        values = values + load_as(weights, base + item(ids, i) * dim, like)
    values = values * splat_as(share, like)
    if streams:
        stream(out, at, values)
    else:
        store(out, at, values)


@inlined
def _sum_64_columns(
    ids: Array, first: int, last: int, base: int, weights: Array, dim: int, share: np.float32, out: Array, at: int, streams: bool
) -> None:  # fmt: skip
    """As :func:`_sum_columns` for four vectors of 16, with one pass over the ids."""
    start, shares = base + item(ids, first) * dim, splat(share)
    a, b = load(weights, start), load(weights, start + LANES)
    c, d = load(weights, start + 2 * LANES), load(weights, start + 3 * LANES)
    for i in range(first + 1, last):
        start = base + item(ids, i) * dim
        a, b = a + load(weights, start), b + load(weights, start + LANES)
        c, d = c + load(weights, start + 2 * LANES), d + load(weights, start + 3 * LANES)
    for k, values in enumerate((a * shares, b * shares, c * shares, d * shares)):
        if streams:
            stream(out, at + k * LANES, values)
        else:
            store(out, at + k * LANES, values)


@inlined
def _sum_rows(
    ids: Array, first: int, last: int, base: int, weights: Array, dim: int, share: np.float32, out: Array, at: int, streams: bool
) -> None:  # fmt: skip
    """Write the sum of the rows of ``ids[first:last]``, at least one, times ``share``."""
    d = dim - dim % LANES
    blocks = dim - dim % (4 * LANES)
    for c in range(0, blocks, 4 * LANES):
        _sum_64_columns(ids, first, last, base + c, weights, dim, share, out, at + c, streams)
    for c in range(blocks, d, LANES):
        _sum_columns(splat(_ZERO), ids, first, last, base + c, weights, dim, share, out, at + c, streams)
    if dim & 8:
        _sum_columns(splat8(_ZERO), ids, first, last, base + d, weights, dim, share, out, at + d, streams)
        d += 8
    if dim & 4:
        _sum_columns(splat4(_ZERO), ids, first, last, base + d, weights, dim, share, out, at + d, streams)
        d += 4
    for c in range(d, dim):
        _sum_columns(splat1(_ZERO), ids, first, last, base + c, weights, dim, share, out, at + c, streams)


@uncounted
def _combine_one(
    f: int, bags: Bags, first: int, last: int, base: int, dim: int, features: FeatureLayout, weights: Array, out: Array, at: int
) -> None:  # fmt: skip
    """A bag without ids, with weights, of quantized rows, or of a sequence feature."""
    ids, _, shares = bags
    limits, sequence = (features.lower[f], features.upper[f], features.quantum[f]), features.sequence[f]
    count, shared = last - first, len(shares) > 0
    if sequence:
        count = min(count, sequence)
        for k in range(count):
            share = shares[first + k] if shared else _ONE
            _read_row(weights, base + ids[first + k] * dim, out, at + k * dim, dim, share, limits, False)
        out[at + count * dim : at + sequence * dim] = _ZERO
        return
    if not count:
        out[at : at + dim] = _ZERO
    share = share_of_bag(features.combiner[f], count)
    for i in range(first, last):
        if shared:
            share = shares[i]
        _read_row(weights, base + ids[i] * dim, out, at, dim, share, limits, i > first)


@inlined
def _combine_feature(
    f: int, start: int, stop: int, bags: Bags, features: FeatureLayout, tables: TableLayout, values: TableValues, out: Array,
    width: int, streams: bool,
) -> None:  # fmt: skip
    """The activations of one feature of some events. Its first rows have been asked for; the others are ahead of their use."""
    ids, offsets, shares = bags
    weights, t = values.weights, features.table[f]
    plain = not (len(shares) or features.sequence[f] or features.quantum[f] != _ZERO)
    dim, base, combiner, at = (
        tables.dims[t],
        tables.weight_base[t],
        features.combiner[f],
        start * width + features.column[f],
    )
    end, last = offsets[f, stop], offsets[f, start]
    for b in range(start, stop):
        first, last = last, offsets[f, b + 1]
        for i in range(first + _AHEAD, min(last + _AHEAD, end)):
            _ask_for_row(item(ids, i), base, dim, weights)
        _initialise_new_rows(ids, first, last, t, base, dim, tables, values)
        if plain and first < last:
            _sum_rows(ids, first, last, base, weights, dim, share_of_bag(combiner, last - first), out, at, streams)
        else:
            _combine_one(f, bags, first, last, base, dim, features, weights, out, at)
        at += width


@inlined
def _ask_for_first_rows(
    f: int, start: int, stop: int, bags: Bags, features: FeatureLayout, tables: TableLayout, weights: Array
) -> None:  # fmt: skip
    t, first = features.table[f], bags.offsets[f, start]
    for i in range(first, min(first + _AHEAD, bags.offsets[f, stop])):
        _ask_for_row(item(bags.ids, i), tables.weight_base[t], tables.dims[t], weights)


@uncounted
def combine_bags(
    first_event: int, stop_event: int, tile: int, bags: Bags, features: FeatureLayout, tables: TableLayout, values: TableValues,
    out: Array, width: int, streams: bool,
) -> None:  # fmt: skip
    """The activations of some events: combined rows, or the rows of a sequence feature; zeros for what a bag has no ids for.

    Args:
        tile: the events that are combined feature after feature. Few keep ``out`` in the cache until it is whole; more find a table's
            common rows in the cache again, which is better for long bags.
        out: float32, flat, of ``width`` columns an event.
        streams: ``out`` is written past the caches; it and all rows must be aligned.
    """
    count = bags.offsets.shape[0]
    _ask_for_first_rows(0, first_event, min(first_event + tile, stop_event), bags, features, tables, values.weights)
    for start in range(first_event, stop_event, tile):
        stop = min(start + tile, stop_event)
        for f in range(count):
            if f + 1 < count:
                _ask_for_first_rows(f + 1, start, stop, bags, features, tables, values.weights)
            elif stop < stop_event:
                _ask_for_first_rows(0, stop, min(stop + tile, stop_event), bags, features, tables, values.weights)
            _combine_feature(f, start, stop, bags, features, tables, values, out, width, streams)
