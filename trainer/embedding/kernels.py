"""The engine's inner loops over flat buffers, without specs, names or TensorFlow.

Their arguments are described in :mod:`trainer.embedding.layout`. Arrays are taken out of their tuples before a loop begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.embedding.layout import CONSTANT, TRUNCATED_NORMAL, UNIFORM, Bags, Scratch, TableLayout, TableValues
from trainer.embedding.row_updates import ADAGRAD_CODE, adagrad_row, sgd_row
from transforms.kernels.compiled import compiled, pasted

Array = np.ndarray[Any, np.dtype[Any]]

BAD_OFFSETS, BAD_ID = 1, 2
#: The state of a row that differs from its initial values.
CHANGED = 2

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ROW = np.uint64(0xD1342543DE82EF95)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 1.0 / 9007199254740992.0  # 2^-53


@compiled
def check_batch(ids: Array, offsets: Array, layout: TableLayout) -> tuple[int, int, int]:
    """(0, 0, 0) if every offset and id is in range, else (BAD_OFFSETS or BAD_ID, feature, position)."""
    table_of, vocabulary = layout.table_of, layout.vocabulary
    features, ends = offsets.shape
    expected = 0
    for f in range(features):
        if offsets[f, 0] != expected:
            return BAD_OFFSETS, f, 0
        for b in range(1, ends):
            if offsets[f, b] < offsets[f, b - 1]:
                return BAD_OFFSETS, f, b
        expected = offsets[f, ends - 1]
        if expected > len(ids):
            return BAD_OFFSETS, f, ends - 1
        size = vocabulary[table_of[f]]
        for i in range(offsets[f, 0], expected):
            if ids[i] < 0 or ids[i] >= size:
                return BAD_ID, f, i
    if expected != len(ids):
        return BAD_OFFSETS, features - 1, ends - 1
    return 0, 0, 0


@pasted
def _mix(x: np.uint64) -> np.uint64:
    """SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014)."""
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


@pasted
def _unit(x: np.uint64) -> float:
    """53 random bits as a float64 in [0, 1)."""
    return float(np.float64(_mix(x) >> _S11) * _UNIT)


@compiled
def _normal(x: np.uint64, truncated: bool) -> float:
    """Box-Muller from a counter; a truncated draw is repeated until within two deviations."""
    while True:
        radius = np.sqrt(-2.0 * np.log(1.0 - _unit(x + _STEP)))
        z = float(radius * np.cos(2.0 * np.pi * _unit(x + _STEP + _STEP)))
        if not truncated or abs(z) <= 2.0:
            return z
        x = _mix(x ^ _STEP)


@compiled
def fill_row(out: Array, at: int, dim: int, key: np.uint64, row: int, kind: int, a: float, b: float) -> None:
    """The initial values of one row: a function of the table's key, the row, the column and the distribution alone."""
    state = _mix(key + np.uint64(row) * _ROW)
    for d in range(dim):
        x = state + np.uint64(d) * _STEP
        if kind == CONSTANT:
            out[at + d] = np.float32(a)
        elif kind == UNIFORM:
            out[at + d] = np.float32(a + (b - a) * _unit(x))
        else:
            out[at + d] = np.float32(a + b * _normal(_mix(x), kind == TRUNCATED_NORMAL))


@compiled
def initialise_missing(bags: Bags, layout: TableLayout, values: TableValues) -> None:
    """Initialise the weights and slots of every row of a (checked) batch that was never read."""
    ids, offsets, _ = bags
    weights, slots, row_state = values
    stride, first_row = layout.rows_of[0], layout.rows_of[1]
    features, ends = offsets.shape
    for f in range(features):
        t = layout.table_of[f]
        dim, row_base, weight_base = layout.dims[t], layout.row_base[t], layout.weight_base[t]
        key, kind, init_a, init_b = layout.keys[t], layout.kinds[t], layout.init_a[t], layout.init_b[t]
        has_slots, slot_base, slot_start = (
            layout.optimizer[t] == ADAGRAD_CODE, layout.slot_base[t], layout.slot_start[t]
        )  # fmt: skip
        for i in range(offsets[f, 0], offsets[f, ends - 1]):
            row = ids[i]
            if row_state[row_base + row] != 0:
                continue
            row_state[row_base + row] = 1
            fill_row(weights, weight_base + row * dim, dim, key, row * stride + first_row, kind, init_a, init_b)
            if has_slots:
                start = slot_base + row * dim
                slots[start : start + dim] = slot_start


@compiled
def shares_of(id_weights: Array, offsets: Array, layout: TableLayout) -> Array:
    """The share of each id of a weighted batch: its weight; for a mean divided by the sum of its bag's weights.

    Ids of a mean whose weights sum to 0 have share 0, as in TensorFlow's ``embedding_lookup_sparse``.
    """
    shares = id_weights.copy()
    table_of, is_mean = layout.table_of, layout.is_mean
    features, ends = offsets.shape
    for f in range(features):
        if not is_mean[table_of[f]]:
            continue
        for b in range(ends - 1):
            total = np.float32(0.0)
            for i in range(offsets[f, b], offsets[f, b + 1]):
                total += id_weights[i]
            for i in range(offsets[f, b], offsets[f, b + 1]):
                shares[i] = id_weights[i] / total if total != 0 else np.float32(0.0)
    return shares


@compiled
def combine_bags(bags: Bags, layout: TableLayout, weights: Array, out: Array) -> None:
    """``out[b, columns of f]`` = sum or mean of the rows of each bag; zeros for an empty bag. Bags in id order.

    With ``shares`` (:func:`shares_of`, or empty) it is the sum of each row times its id's share.
    """
    ids, offsets, shares = bags
    features, ends = offsets.shape
    shared = len(shares) > 0
    for f in range(features):
        t = layout.table_of[f]
        dim, base, at, is_mean = layout.dims[t], layout.weight_base[t], layout.column[f], layout.is_mean[t]
        for b in range(ends - 1):
            activation = out[b, at : at + dim]
            first, last = offsets[f, b], offsets[f, b + 1]
            if first == last:
                activation[:] = np.float32(0.0)
                continue
            if shared:
                activation[:] = np.float32(0.0)
                for i in range(first, last):
                    start = base + ids[i] * dim
                    for d in range(dim):
                        activation[d] += shares[i] * weights[start + d]
                continue
            start = base + ids[first] * dim
            for d in range(dim):
                activation[d] = weights[start + d]
            for i in range(first + 1, last):
                start = base + ids[i] * dim
                for d in range(dim):
                    activation[d] += weights[start + d]
            if is_mean and last - first > 1:
                share = np.float32(1.0) / np.float32(last - first)
                for d in range(dim):
                    activation[d] *= share


@compiled
def sum_gradients(t: int, bags: Bags, layout: TableLayout, gradients: Array, scratch: Scratch) -> int:
    """Sum the gradients of one table's rows over all their occurrences: features, events and ids in order.

    ``place`` of the scratch maps a row to 1 + its position in ``rows`` and ``sums``. Returns the number of distinct rows.
    """
    ids, offsets, shares = bags
    place, rows, sums = scratch
    row_base, dim, is_mean = layout.row_base[t], layout.dims[t], layout.is_mean[t]
    distinct = 0
    shared = len(shares) > 0
    for f in layout.features_of[layout.first_feature[t] : layout.first_feature[t + 1]]:
        at = layout.column[f]
        for b in range(offsets.shape[1] - 1):
            first, last = offsets[f, b], offsets[f, b + 1]
            share = np.float32(1.0)
            if is_mean and last - first > 1:
                share = np.float32(1.0) / np.float32(last - first)
            for i in range(first, last):
                row = ids[i]
                if shared:
                    share = shares[i]
                position = place[row_base + row]
                if position == 0:
                    distinct += 1
                    position = distinct
                    place[row_base + row] = position
                    rows[distinct - 1] = row
                    sums[(distinct - 1) * dim : distinct * dim] = np.float32(0.0)
                start = (position - 1) * dim
                for d in range(dim):
                    sums[start + d] += share * gradients[b, at + d]
    return distinct


@compiled
def update_distinct(t: int, distinct: int, layout: TableLayout, scratch: Scratch, values: TableValues) -> None:
    """One optimizer update for each of the ``distinct`` rows of a table that the scratch holds, which is cleared for the next."""
    place, rows, sums = scratch
    weights, slots, row_state = values
    dim, rate, row_base, weight_base = layout.dims[t], layout.rate[t], layout.row_base[t], layout.weight_base[t]
    has_slots, slot_base = layout.optimizer[t] == ADAGRAD_CODE, layout.slot_base[t]
    for k in range(distinct):
        w = weight_base + rows[k] * dim
        if has_slots:
            adagrad_row(weights, w, slots, slot_base + rows[k] * dim, sums, k * dim, dim, rate)
        else:
            sgd_row(weights, w, sums, k * dim, dim, rate)
        place[row_base + rows[k]] = 0
        row_state[row_base + rows[k]] = CHANGED


@compiled
def apply_gradients(bags: Bags, gradients: Array, layout: TableLayout, scratch: Scratch, values: TableValues) -> None:
    """One optimizer update for every distinct row of the batch, with the sum of its gradients."""
    for t in range(len(layout.dims)):
        update_distinct(t, sum_gradients(t, bags, layout, gradients, scratch), layout, scratch, values)


@compiled
def read_rows(bags: Bags, layout: TableLayout, weights: Array, out: Array) -> None:
    """The weights of the ids of a batch with one feature a table and one event, one after the other."""
    ids, offsets, _ = bags
    at = 0
    for f in range(offsets.shape[0]):
        t = layout.table_of[f]
        dim, base = layout.dims[t], layout.weight_base[t]
        for i in range(offsets[f, 0], offsets[f, 1]):
            start = base + ids[i] * dim
            for d in range(dim):
                out[at + d] = weights[start + d]
            at += dim


@compiled
def update_rows(bags: Bags, gradients: Array, layout: TableLayout, scratch: Scratch, values: TableValues) -> None:
    """One optimizer update for every distinct row of a batch as in :func:`read_rows`, with the sum of its ``gradients``.

    ``gradients``: for each id its values, one after the other, added in the order of the ids.
    """
    ids, offsets, _ = bags
    place, rows, sums = scratch
    at = 0
    for f in range(offsets.shape[0]):
        t = layout.table_of[f]
        dim, row_base = layout.dims[t], layout.row_base[t]
        distinct = 0
        for i in range(offsets[f, 0], offsets[f, 1]):
            row = ids[i]
            position = place[row_base + row]
            if position == 0:
                distinct += 1
                position = distinct
                place[row_base + row] = position
                rows[distinct - 1] = row
                sums[(distinct - 1) * dim : distinct * dim] = np.float32(0.0)
            start = (position - 1) * dim
            for d in range(dim):
                sums[start + d] += gradients[at + d]
            at += dim
        update_distinct(t, distinct, layout, scratch, values)


@compiled
def count_aside(bags: Bags, layout: TableLayout, captured: Array, is_aside: Array, row_state: Array) -> int:
    """At most the floats that :func:`put_aside` adds: rows that occur more than once are counted each time."""
    ids, offsets, _ = bags
    floats = 0
    for f in range(offsets.shape[0]):
        t = layout.table_of[f]
        base, first_row = layout.row_base[t], captured[t]
        width = 2 * layout.dims[t]
        for i in range(offsets[f, 0], offsets[f, offsets.shape[1] - 1]):
            row = ids[i]
            if row >= first_row and is_aside[base + row] == 0 and row_state[base + row] == CHANGED:
                floats += width
    return int(floats)


@compiled
def put_aside(
    bags: Bags, layout: TableLayout, values: TableValues, captured: Array, is_aside: Array, rows: Array, was_changed: Array,
    places: Array, kept: Array, count: int, used: int,
) -> tuple[int, int]:  # fmt: skip
    """Copy the rows of a (checked) batch, from ``captured`` of their table on, that were not put aside; once each.

    ``rows``, ``was_changed`` and ``places`` have space for all ids, ``kept`` for their weights and slots. Rows without changes are
    only noted. Returns the new numbers of rows and of floats.
    """
    ids, offsets, _ = bags
    weights, slots, row_state = values
    for f in range(offsets.shape[0]):
        t = layout.table_of[f]
        base, first_row, dim = layout.row_base[t], captured[t], layout.dims[t]
        has_slots = layout.optimizer[t] == ADAGRAD_CODE
        for i in range(offsets[f, 0], offsets[f, offsets.shape[1] - 1]):
            row = ids[i]
            if row < first_row or is_aside[base + row] != 0:
                continue
            is_aside[base + row] = 1
            rows[count] = base + row
            places[count] = used
            was_changed[count] = row_state[base + row] == CHANGED
            if was_changed[count]:
                start = layout.weight_base[t] + row * dim
                kept[used : used + dim] = weights[start : start + dim]
                used += dim
                if has_slots:
                    start = layout.slot_base[t] + row * dim
                    kept[used : used + dim] = slots[start : start + dim]
                    used += dim
            count += 1
    return count, used
