"""The latest row of each event where rows and events come in the order of time: one pass over both, without an order by key."""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled
from transforms.kernels.history_order import bound_of


@compiled
def latest_in_time(
    row_keys: Array, row_time: Array, used: Array, event_keys: Array, at: Array, size: int, shift: int, is_open: bool, start: int, hop: int,
) -> tuple[Array, bool]:  # fmt: skip
    """For each event its latest row, -1 without one, and whether two rows of one key have one time, which ends the pass.

    Args:
        row_keys: the number of each row's key, -1 for none: int64.
        row_time: of each row, ascending: int64.
        used: which rows are used, empty if all are: bool.
        event_keys: of events, as ``row_keys``.
        at: of each event, ascending: int64.
        size: the number of keys.
        shift: rows before ``at + shift`` are seen.
        is_open: whether all of these rows are seen, however old they are.
        start: otherwise rows from ``at + start`` on are seen, moved back to a multiple of ``hop`` if that is not 0.
        hop: see ``start``.
    """
    latest, latest_time, found = np.full(size, -1), np.empty(size, np.int64), np.full(len(at), -1)
    row = 0
    for event in range(len(at)):
        end = bound_of(at[event], shift, 0)
        while row < len(row_time) and row_time[row] < end:
            key = row_keys[row]
            if key >= 0 and (len(used) == 0 or used[row]):
                if latest[key] >= 0 and latest_time[key] == row_time[row]:
                    return found, True
                latest[key], latest_time[key] = row, row_time[row]
            row += 1
        if event_keys[event] >= 0:
            key = event_keys[event]
            if latest[key] >= 0 and (is_open or latest_time[key] >= bound_of(at[event], start, hop)):
                found[event] = latest[key]
    return found, False
