"""Stretches of a fragment's rows over which its due events are spread evenly. Pure.

Units and shares of hosts are cut by due events, which a plan knows by stretch only. So rows whose due events are spread unevenly, such as
those of late labels, become several stretches.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from transforms.arrays import Array

#: The first row of a stretch, its rows, and its due events.
Stretch = tuple[int, int, int]


def due_rows(is_due: Array) -> Array | None:
    """The rows of a fragment that are due, int64 ascending; None for all. ``is_due``: bool [rows]."""
    return None if is_due.all() else np.flatnonzero(is_due)


def stretches_of(rows: int, due: Array | None, tolerance: int) -> list[Stretch]:
    """The stretches of a fragment, ascending: none without due events, and no row before the first or after the last of them.

    Args:
        rows: of the fragment.
        due: the rows that are due, ascending; None for all.
        tolerance: the due events before a row may differ by so many, or by one, from those that an even spread would have.
    """
    if due is None:
        return [(0, rows, rows)] if rows else []
    if not len(due):
        return []
    first, stop = int(due[0]), int(due[-1]) + 1
    even = first + np.arange(len(due)) * (stop - first) // len(due)
    # The error in due events before a row: that in rows, by their mean distance.
    apart = np.abs(due - even).max() * len(due) / (stop - first)
    if apart <= max(1, tolerance):
        return [(first, stop - first, len(due))]
    size = max(1, tolerance)
    ends = [*due[::size].tolist(), stop]
    counts = [min(size, len(due) - k * size) for k in range(len(ends) - 1)]
    return [(begin, end - begin, count) for (begin, end), count in zip(pairwise(ends), counts, strict=True)]
