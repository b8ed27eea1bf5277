"""Kernels that count what two lists share."""

from __future__ import annotations

import numpy as np

from transforms.columns import Array, Column, Numbers, RaggedItems
from transforms.errors import DataError
from transforms.kernels.sets import intersect, unique


def overlap_count(column: Column, others: Column) -> Column:
    """The number of distinct values in both lists of each row."""
    return Numbers(_sizes(intersect(column, others)))


def jaccard(column: Column, others: Column) -> Column:
    """Distinct values in both lists of each row divided by those in either; 0 where both are empty."""
    both = _sizes(intersect(column, others))
    either = _sizes(unique(column)) + _sizes(unique(others)) - both
    return Numbers((both / np.maximum(either, 1)).astype(np.float32))


def _sizes(column: Column) -> Array:
    if not isinstance(column, RaggedItems):
        raise DataError("a set kernel gave something that is not a list", value=type(column).__name__)
    return np.diff(column.offsets).astype(np.int64)
