"""Kernels over lists of timestamps in the order of time. Differences are unsigned, so that all fit."""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, RaggedItems
from transforms.errors import DataError
from transforms.kernels.buffers import positions
from transforms.kernels.compiled import compiled
from transforms.kernels.lists import lists_of
from transforms.kernels.spans import frozen
from transforms.operators.sequences import gap_micros


def session_index(column: Column, *, gap_secs: float) -> Column:
    """The session of each item, counted from 0."""
    offsets, times = _times(column)
    return RaggedItems(offsets, Numbers(_session_index(offsets, times, np.uint64(gap_micros(gap_secs)))))


def gaps_secs(column: Column) -> Column:
    """Seconds from the item before to each item; 0 for the first."""
    offsets, times = _times(column)
    return RaggedItems(offsets, Numbers(_gaps_secs(offsets, times)))


def _times(column: Column) -> tuple[Array, Array]:
    lists = lists_of(column)
    if not isinstance(lists.items, Numbers):
        raise DataError("the argument of the kernel must be timestamps")
    return positions(lists.offsets), frozen(lists.items.values)


@compiled
def _session_index(offsets: Array, times: Array, gap: np.uint64) -> Array:
    sessions = np.zeros(len(times), np.int64)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row] + 1, offsets[row + 1]):
            before, after = times[i - 1], times[i]
            begins = after > before and np.uint64(after) - np.uint64(before) > gap
            sessions[i] = sessions[i - 1] + begins
    return sessions


@compiled
def _gaps_secs(offsets: Array, times: Array) -> Array:
    gaps = np.zeros(len(times), np.float64)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row] + 1, offsets[row + 1]):
            before, after = times[i - 1], times[i]
            if after >= before:
                gaps[i] = np.float64(np.uint64(after) - np.uint64(before)) / 1e6
            else:
                gaps[i] = -(np.float64(np.uint64(before) - np.uint64(after)) / 1e6)
    return gaps
