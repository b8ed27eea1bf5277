"""The loops of hybrid placement: values that come from, or go to, two tiers."""

from __future__ import annotations

from trainer.tables.kernels.row_parts import copy_row
from transforms.arrays import Array
from transforms.kernels.compiled import compiled


@compiled
def join_tiers(is_hot: Array, counts: Array, dims: Array, hot: Array, cold: Array, values: Array) -> None:
    """Write the rows of both tiers, each in its order, to ``values``; each table has ``counts`` rows of ``dims`` values."""
    k, at, of_hot, of_cold = 0, 0, 0, 0
    for t in range(len(counts)):
        dim = dims[t]
        for _ in range(counts[t]):
            if is_hot[k]:
                copy_row(hot, of_hot, values, at, dim)
                of_hot += dim
            else:
                copy_row(cold, of_cold, values, at, dim)
                of_cold += dim
            at += dim
            k += 1


@compiled
def split_tiers(is_hot: Array, counts: Array, dims: Array, values: Array, hot: Array, cold: Array) -> None:
    """The inverse of :func:`join_tiers`."""
    k, at, of_hot, of_cold = 0, 0, 0, 0
    for t in range(len(counts)):
        dim = dims[t]
        for _ in range(counts[t]):
            if is_hot[k]:
                copy_row(values, at, hot, of_hot, dim)
                of_hot += dim
            else:
                copy_row(values, at, cold, of_cold, dim)
                of_cold += dim
            at += dim
            k += 1
