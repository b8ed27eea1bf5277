"""Ascending numbers of rows as sets."""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array


def is_among(rows: Array, others: Array) -> Array:
    """Which of some rows are among others, int64 and ascending, as a mask."""
    if not len(others):
        return np.zeros(len(rows), bool)
    at = np.minimum(np.searchsorted(others, rows), len(others) - 1)
    found: Array = others[at] == rows
    return found


def without_rows(rows: Array, others: Array) -> Array:
    """Those of some rows that are not among others, int64 and ascending."""
    found: Array = rows[~is_among(rows, others)]
    return found
