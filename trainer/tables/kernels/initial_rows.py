"""Initial values of rows: a function of the table's key, the row, the column and the distribution alone."""

from __future__ import annotations

import numpy as np

from trainer.tables.kernels.layout import CONSTANT, TRUNCATED_NORMAL, UNIFORM, Bags, TableLayout, TableValues
from trainer.tables.kernels.vectors import release
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, pasted, uncounted

#: The state of a row that has its initial values.
INITIALISED = 1

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ROW = np.uint64(0xD1342543DE82EF95)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 1.0 / 9007199254740992.0  # 2^-53


@pasted
def mix(x: np.uint64) -> np.uint64:
    """SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014)."""
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


@pasted
def _unit(x: np.uint64) -> float:
    """53 random bits as a float64 in [0, 1)."""
    return float(np.float64(mix(x) >> _S11) * _UNIT)


@compiled
def _normal(x: np.uint64, truncated: bool) -> float:
    """Box-Muller from a counter; a truncated draw is repeated until within two deviations."""
    while True:
        radius = np.sqrt(-2.0 * np.log(1.0 - _unit(x + _STEP)))
        z = float(radius * np.cos(2.0 * np.pi * _unit(x + _STEP + _STEP)))
        if not truncated or abs(z) <= 2.0:
            return z
        x = mix(x ^ _STEP)


@inlined
def fill_columns(
    out: Array, at: int, first: int, stop: int, key: np.uint64, row: int, kind: int, a: float, b: float
) -> None:  # fmt: skip
    """As :func:`fill_row` for the columns ``first`` to ``stop``; column 0 would be at ``at``, which may be negative."""
    state = mix(key + np.uint64(row) * _ROW)
    for d in range(first, stop):
        x = state + np.uint64(d) * _STEP
        if kind == CONSTANT:
            out[at + d] = np.float32(a)
        elif kind == UNIFORM:
            out[at + d] = np.float32(a + (b - a) * _unit(x))
        else:
            out[at + d] = np.float32(a + b * _normal(mix(x), kind == TRUNCATED_NORMAL))


@compiled
def fill_row(out: Array, at: int, dim: int, key: np.uint64, row: int, kind: int, a: float, b: float) -> None:
    """Write the initial values of one row to ``out`` from ``at`` on."""
    fill_columns(out, at, 0, dim, key, row, kind, a, b)


@uncounted
def initialise_row(t: int, row: int, tables: TableLayout, values: TableValues) -> None:
    """Write the initial weights and slots of a row that was never read. Threads that do so at once write the same values.

    The last weight is written after all others: a thread that finds it different from zero finds them, too.
    """
    weights, slots, row_state = values
    dim, slot_dim = tables.dims[t], tables.slot_dims[t]
    whole = row * tables.row_stride[t] + tables.row_first[t]
    key, kind, a, b = tables.keys[t], tables.kinds[t], tables.init_a[t], tables.init_b[t]
    start = tables.slot_base[t] + row * slot_dim
    for d in range(slot_dim):
        slots[start + d] = tables.slot_start[tables.first_slot[t] + d]
    first = tables.first_column[t]
    last = first + dim - 1
    start = tables.weight_base[t] + row * dim - first  # where column 0 of the whole table would be
    fill_columns(weights, start, first, last, key, whole, kind, a, b)
    release()
    fill_columns(weights, start, last, last + 1, key, whole, kind, a, b)
    release()
    row_state[tables.row_base[t] + row] = INITIALISED


@compiled
def initialise_missing(bags: Bags, table_of: Array, tables: TableLayout, values: TableValues) -> None:
    """Initialise every row of a (checked) batch that was never read."""
    ids, offsets, _ = bags
    for f in range(offsets.shape[0]):
        t = table_of[f]
        row_base = tables.row_base[t]
        for i in range(offsets[f, 0], offsets[f, offsets.shape[1] - 1]):
            if values.row_state[row_base + ids[i]] == 0:
                initialise_row(t, ids[i], tables, values)


@compiled
def assign_rows(rows: Array, numbers: Array, counts: Array, tables: TableLayout, values: TableValues) -> None:
    """Give ``rows``, table after table, the initial weights and slots that the rows ``numbers`` have."""
    weights, slots, row_state = values
    k = 0
    for t in range(len(counts)):
        dim, slot_dim, first, at = tables.dims[t], tables.slot_dims[t], tables.first_column[t], tables.first_slot[t]
        for _ in range(counts[t]):
            row, start = rows[k], tables.slot_base[t] + rows[k] * slot_dim
            for d in range(slot_dim):
                slots[start + d] = tables.slot_start[at + d]
            start = tables.weight_base[t] + row * dim - first  # where column 0 of the whole table would be
            _fill_whole(t, numbers[k], tables, weights, start)
            row_state[tables.row_base[t] + row] = INITIALISED
            k += 1


@inlined
def _fill_whole(t: int, row: int, tables: TableLayout, out: Array, at: int) -> None:
    """The initial weights of a row; column 0 of the whole table would be at ``at``."""
    first = tables.first_column[t]
    whole = row * tables.row_stride[t] + tables.row_first[t]
    fill_columns(
        out,
        at,
        first,
        first + tables.dims[t],
        tables.keys[t],
        whole,
        tables.kinds[t],
        tables.init_a[t],
        tables.init_b[t],
    )


@uncounted
def initial_weights(t: int, row: int, tables: TableLayout, out: Array, at: int) -> None:
    """Write the initial weights of a row to ``out`` from ``at`` on."""
    _fill_whole(t, row, tables, out, at - tables.first_column[t])
