"""The loops of hybrid placement: the lookups of each distinct row, and values that come from, or go to, two tiers."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.embedding.cpu.layout import Bags, FeatureLayout, TableLayout
from trainer.embedding.cpu.row_parts import copy_row
from transforms.kernels.compiled import compiled

Array = np.ndarray[Any, np.dtype[Any]]


@compiled
def count_lookups(bags: Bags, features: FeatureLayout, tables: TableLayout, lookups: Array) -> None:
    """Add the lookups of each row of a batch, whose ids are positions in compact tables, to ``lookups``, table after table."""
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
