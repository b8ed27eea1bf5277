"""Counts of ids that wait for admission, in bounded memory.

Candidates stand in lines of eight, one line an id by its hash: an update of an id without a row touches one cache line. A new id in a full
line replaces a candidate that has aged, else the one that was updated longest ago. 32 bits of the hash stand for an id, so one id in
about 2^29 per line takes the count of another one and is admitted early; none is admitted late for that.
"""

from __future__ import annotations

import numpy as np

from trainer.tables.kernels.undo_kernels import HEAD, ITEM_HEAD, ITEMS, put_start
from trainer.tables.kernels.vectors import release
from trainer.tables.stores.hashed.find import hash_of
from trainer.tables.stores.hashed.index_layout import IndexLayout, IndexValues
from trainer.tables.stores.hashed.options import WAYS
from transforms.arrays import Array
from transforms.kernels.compiled import inlined, uncounted

#: The numbers of the log that a counted id takes.
LOG_NUMBERS = ITEM_HEAD + 2
_STEP_MASK = (1 << 24) - 1


@inlined
def _log(log: Array, block: int, start: int, value: np.uint64) -> None:
    """Append a candidate, as two numbers, to a block of the undo log."""
    items = log[block + ITEMS]
    at = block + HEAD + int(items) * LOG_NUMBERS
    put_start(log, at, 2 * start)
    log[at + ITEM_HEAD] = np.uint32(value & np.uint64(0xFFFFFFFF))
    log[at + ITEM_HEAD + 1] = np.uint32(value >> np.uint64(32))
    log[block + ITEMS] = items + np.uint32(1)
    release()


@inlined
def line_of(key: np.uint64, row: int, lines: int) -> int:
    """The line of an id among so many; ``key``: what the ids of its table are hashed with."""
    _, low = hash_of(key, row)
    return (low * lines) >> 32


@uncounted
def count_candidate(
    t: int, row: int, step: int, layout: IndexLayout, index: IndexValues, log: Array, block: int
) -> bool:
    """Count an update of an id without a row; whether it is admitted. Admitted ones are no candidates any more.

    ``block``: where the block of the undo log begins that keeps what is changed.
    """
    if layout.admit_after[t] == 1:
        return True
    candidates, count, now = index.candidates, 0, step & _STEP_MASK
    high, _ = hash_of(layout.keys[t], row)
    start = layout.first_candidate[t] + line_of(layout.keys[t], row, layout.lines[t]) * WAYS
    found, oldest, age_of_oldest = -1, start, -1
    for at in range(start, start + WAYS):
        held = candidates[at]
        if held == np.uint64(0):
            age = _STEP_MASK + 1
        else:
            age = (now - (int(np.int64(held >> np.uint64(8))) & _STEP_MASK)) & _STEP_MASK
            if np.int64(held >> np.uint64(32)) == high:
                found = at
                count = int(np.int64(held & np.uint64(255))) if age <= layout.candidate_steps[t] else 0
                break
        if age > age_of_oldest:
            oldest, age_of_oldest = at, age
    at = found if found >= 0 else oldest
    count += 1
    _log(log, block, at, candidates[at])
    if count >= layout.admit_after[t]:
        if found >= 0:
            candidates[at] = np.uint64(0)
        return True
    candidates[at] = np.uint64(high << 32) | np.uint64(now << 8) | np.uint64(count)
    return False
