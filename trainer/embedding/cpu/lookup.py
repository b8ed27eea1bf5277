"""The loops of a lookup: check a batch, weigh its ids, combine the rows of its bags.

Arguments are described in :mod:`trainer.embedding.cpu.layout`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.embedding.cpu.initial_rows import initialise_row
from trainer.embedding.cpu.layout import MEAN, SQRTN, SUM, Bags, FeatureLayout, TableLayout, TableValues
from trainer.embedding.cpu.vectors import LANES, acquire, clip, floor, load, prefetch, splat, store, stream
from transforms.kernels.compiled import compiled, inlined, uncounted

Array = np.ndarray[Any, np.dtype[Any]]


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
def _read_row(
    weights: Array, w: int, out: Array, at: int, dim: int, share: np.float32, limits: tuple[np.float32, np.float32, np.float32], adds: bool
) -> None:  # fmt: skip
    """Write a row times its share, quantized, to ``out``; or add it, if ``adds``."""
    lower, upper, quantum = limits
    whole = dim - dim % LANES
    shares, lowers, uppers, quanta, half = splat(share), splat(lower), splat(upper), splat(quantum), splat(_HALF)
    for d in range(0, whole, LANES):
        values = load(weights, w + d)
        if quantum != _ZERO:
            values = floor((clip(values, lowers, uppers) - lowers) / quanta + half) * quanta + lowers
        values = values * shares
        store(out, at + d, load(out, at + d) + values if adds else values)
    for d in range(whole, dim):
        value = weights[w + d]
        if quantum != _ZERO:
            value = floor((clip(value, lower, upper) - lower) / quantum + _HALF) * quantum + lower
        out[at + d] = out[at + d] + value * share if adds else value * share


@inlined
def _ask_for_rows(ids: Array, first: int, last: int, t: int, tables: TableLayout, values: TableValues) -> None:
    """Bring rows into the cache, and initialise those that were never read."""
    dim, base, row_base = tables.dims[t], tables.weight_base[t], tables.row_base[t]
    for i in range(first, last):
        row = ids[i]
        if values.row_state[row_base + row] == 0:
            initialise_row(t, row, tables, values)
        start = base + row * dim
        for d in range(0, dim, LANES):
            prefetch(values.weights, start + d)


@inlined
def _sum_rows(
    ids: Array, first: int, last: int, base: int, weights: Array, dim: int, share: np.float32, out: Array, at: int, streams: bool
) -> None:  # fmt: skip
    """Write the sum of the rows of ``ids[first:last]``, at least one, times ``share``."""
    whole = dim - dim % LANES
    shares = splat(share)
    for d in range(0, whole, LANES):
        values = load(weights, base + ids[first] * dim + d)
        for i in range(first + 1, last):
            values = values + load(weights, base + ids[i] * dim + d)
        if streams:
            stream(out, at + d, values * shares)
        else:
            store(out, at + d, values * shares)
    for d in range(whole, dim):
        value = weights[base + ids[first] * dim + d]
        for i in range(first + 1, last):
            value += weights[base + ids[i] * dim + d]
        out[at + d] = value * share


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


@uncounted
def combine_bags(
    first_event: int, stop_event: int, tile: int, bags: Bags, features: FeatureLayout, tables: TableLayout, values: TableValues,
    out: Array, width: int, streams: bool,
) -> None:  # fmt: skip
    """The activations of some events: combined rows, or the rows of a sequence feature; zeros for what a bag has no ids for.

    Args:
        tile: the events that are combined feature after feature. One event writes ``out`` in order; more find a table's common rows
            in the cache again, which is better for long bags. The rows of a bag are asked for while that before it is combined.
        out: float32, flat, of ``width`` columns an event.
        streams: ``out`` is written past the caches; it and all rows must be aligned.
    """
    ids, offsets, shares = bags
    shared = len(shares) > 0
    for start in range(first_event, stop_event, tile):
        stop = min(start + tile, stop_event)
        for f in range(offsets.shape[0]):
            t, plain = features.table[f], not (shared or features.sequence[f] or features.quantum[f] != _ZERO)
            if start == first_event or tile > 1:
                _ask_for_rows(ids, offsets[f, start], offsets[f, start + 1], t, tables, values)
            for b in range(start, stop):
                if b + 1 < stop or (tile == 1 and stop < stop_event):
                    _ask_for_rows(ids, offsets[f, b + 1], offsets[f, b + 2], t, tables, values)
                acquire()
                first, last, at = offsets[f, b], offsets[f, b + 1], b * width + features.column[f]
                dim, base = tables.dims[t], tables.weight_base[t]
                if plain and first < last:
                    share = share_of_bag(features.combiner[f], last - first)
                    _sum_rows(ids, first, last, base, values.weights, dim, share, out, at, streams)
                else:
                    _combine_one(f, bags, first, last, base, dim, features, values.weights, out, at)


@compiled
def read_rows(bags: Bags, tables: TableLayout, weights: Array, out: Array) -> None:
    """The weights of the ids of a batch with one feature a table and one event, one after the other."""
    ids, offsets, _ = bags
    at = 0
    for t in range(offsets.shape[0]):
        dim, base = tables.dims[t], tables.weight_base[t]
        for i in range(offsets[t, 0], offsets[t, 1]):
            start = base + ids[i] * dim
            for d in range(dim):
                out[at + d] = weights[start + d]
            at += dim
