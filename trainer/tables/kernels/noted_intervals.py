"""The loops that note in which interval rows were changed."""

from __future__ import annotations

from transforms.arrays import Array
from transforms.kernels.compiled import compiled


@compiled
def note_rows(
    rows: Array, counts: Array, starts: Array, is_by_row: Array, interval: int, intervals: Array
) -> None:  # fmt: skip
    """Write ``interval`` at the (checked) rows of each table, of which it has ``counts``.

    ``starts``: where the numbers of each table begin in ``intervals``; ``is_by_row``: bool, which tables are noted by their rows: others are left out.
    """
    first = 0
    for t in range(len(counts)):
        stop, start = first + counts[t], starts[t]
        if is_by_row[t]:
            for i in range(first, stop):
                intervals[start + rows[i]] = interval
        first = stop


@compiled
def note_numbers(numbers: Array, start: int, interval: int, intervals: Array) -> None:
    """Write ``interval`` at the (checked) numbers of a table, which begins at ``start`` in ``intervals``."""
    for i in range(len(numbers)):
        intervals[start + numbers[i]] = interval
