"""The loop that notes in which interval rows were changed."""

from __future__ import annotations

from transforms.arrays import Array
from transforms.kernels.compiled import compiled


@compiled
def note_rows(rows: Array, counts: Array, starts: Array, interval: int, intervals: Array) -> None:
    """Write ``interval`` at the (checked) rows of each table, of which it has ``counts``.

    ``starts``: where the rows of each table begin in ``intervals``, and where the last ones end; a table without any is left out.
    """
    first = 0
    for t in range(len(counts)):
        stop, start = first + counts[t], starts[t]
        if starts[t + 1] > start:
            for i in range(first, stop):
                intervals[start + rows[i]] = interval
        first = stop
