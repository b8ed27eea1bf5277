"""The decisions of an update, before it changes a row: which ids get places, and which rows lose theirs.

All ids of the batch are looked up first, so no row that the batch uses loses its place. Then rows expire, oldest first; then new ids are
admitted in the order of their ids, as many as there are places that the batch does not use; and the rows of the oldest last use make space for
those that find no free place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainer.tables.stores.hashed.candidates import count_candidate
from trainer.tables.stores.hashed.find import find_places, id_of
from trainer.tables.stores.hashed.index_layout import (
    AFTER,
    FIRST,
    FREE,
    FRESH,
    RECORD,
    STEP,
    STORED,
    USE,
    WORDS,
    IndexLayout,
    IndexValues,
)
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, uncounted

#: The rows of a table that may expire in one step beside twice the ids of its batch: no step is long because many rows have one age.
EXPIRED_ROWS = 256
# The counts of a table in decisions.
NEW, OF_REMOVED, OF_FREE, OF_EXPIRED, UNADMITTED_IDS, UNPLACED_IDS, COUNTS = range(7)


class Decisions(NamedTuple):
    """What an update does to the places of each table.

    Attributes:
        ids: int64, the distinct ids of the batch, table after table, ascending in each.
        starts: int64 [tables + 1], where those of each table begin.
        places: int64, the place of each, or :data:`~trainer.tables.stores.hashed.find.MISSING`.
        is_new: bool, which of them get their place by this update.
        removed: int64, the places that rows lose, table after table: first those that expire. New ids take the first of them.
        removed_starts: int64 [tables + 1].
        counts: int64 [tables, COUNTS]: new ids; those in places of removed rows, and in free places; expired rows; ids that wait for
            admission; ids without a place.
    """

    ids: Array
    starts: Array
    places: Array
    is_new: Array
    removed: Array
    removed_starts: Array
    counts: Array


def empty_decisions(rows: int, tables: int) -> Decisions:
    """Decisions with space for a batch of so many ids."""
    return Decisions(
        np.empty(rows, np.int64), np.empty(tables + 1, np.int64), np.empty(rows, np.int64), np.empty(rows, np.bool_),
        np.empty(3 * rows + EXPIRED_ROWS * tables, np.int64), np.zeros(tables + 1, np.int64), np.zeros((tables, COUNTS), np.int64),
    )  # fmt: skip


@inlined
def _is_in_batch(decided: Decisions, first: int, stop: int, row: int) -> bool:
    ids, last = decided.ids, stop
    while first < last:
        middle = (first + last) // 2
        if ids[middle] < row:
            first = middle + 1
        else:
            last = middle
    return bool(first < stop and ids[first] == row)


@uncounted
def _remove_oldest(
    t: int,
    most: int,
    used_before: int,
    at: int,
    removed: int,
    decided: Decisions,
    layout: IndexLayout,
    index: IndexValues,
) -> tuple[int, int]:
    """List up to ``most`` rows that were last used before a step and not by this batch, from the place at ``at`` of the list on.

    ``at`` is 1 + a place. Returns the new end of ``decided.removed`` and where the search ended; -1 for a damaged list.
    """
    records, left = index.records, most
    first, stop = decided.starts[t], decided.starts[t + 1]
    for _ in range(most + stop - first):
        if at == 0 or left == 0:
            break
        if at < 0 or at > layout.places[t]:
            return -1, at
        start = (layout.first_place[t] + at - 1) * RECORD
        use = int(records[start + USE])
        if use == 0:
            return -1, at
        if use >= used_before:
            break
        row = id_of(records, start)
        if not _is_in_batch(decided, first, stop, row):
            decided.removed[removed] = at - 1
            removed += 1
            left -= 1
        at = int(records[start + AFTER])
    return removed, at


@uncounted
def _admit(t: int, decided: Decisions, layout: IndexLayout, index: IndexValues, log: Array, block: int) -> int:
    """Mark the ids of a table that are admitted, and count the others; returns the number of ids that have places."""
    first, stop, step = decided.starts[t], decided.starts[t + 1], index.words[t * WORDS + STEP] + 1
    found = 0
    for k in range(first, stop):
        found += decided.places[k] >= 0
    space, new = layout.places[t] - found, 0
    unadmitted, unplaced = 0, 0
    for k in range(first, stop):
        decided.is_new[k] = False
        if decided.places[k] >= 0:
            continue
        if not count_candidate(t, decided.ids[k], step, layout, index, log, block):
            unadmitted += 1
        elif new == space:
            unplaced += 1
        else:
            decided.is_new[k] = True
            new += 1
    counts = decided.counts
    counts[t, NEW], counts[t, UNADMITTED_IDS], counts[t, UNPLACED_IDS] = new, unadmitted, unplaced
    return found


@uncounted
def _take_places(t: int, decided: Decisions, layout: IndexLayout, index: IndexValues) -> bool:
    """Give the new ids of a table the places of removed rows, then free ones, then those that were never used. False: damaged."""
    records, words, counts, places = index.records, index.words, decided.counts, layout.places[t]
    at, removed_stop = decided.removed_starts[t], decided.removed_starts[t + 1]
    free, fresh = words[t * WORDS + FREE], words[t * WORDS + FRESH]
    of_removed, of_free = 0, 0
    for k in range(decided.starts[t], decided.starts[t + 1]):
        if not decided.is_new[k]:
            continue
        if at < removed_stop:
            place = decided.removed[at]
            at += 1
            of_removed += 1
        elif free:
            if free < 0 or free > places:
                return False
            place = free - 1
            start = (layout.first_place[t] + place) * RECORD
            if records[start + USE]:
                return False
            free = int(records[start + AFTER])
            of_free += 1
        else:
            place = fresh
            if place < 0 or place >= places:
                return False
            fresh += 1
        decided.places[k] = place
    counts[t, OF_REMOVED], counts[t, OF_FREE] = of_removed, of_free
    return True


@compiled
def decide(decided: Decisions, layout: IndexLayout, index: IndexValues, log: Array, block: int) -> bool:
    """Decide for the ids of a batch, which are filled in; counts of candidates are changed, under the undo log. False: the index is damaged.

    ``log``: the undo log, with a block for two numbers of each candidate from ``block`` on.
    """
    if not find_places(decided.ids, decided.starts, layout, index, decided.places):
        return False
    removed = 0
    for t in range(len(decided.starts) - 1):
        words = t * WORDS
        step, stored = index.words[words + STEP] + 1, index.words[words + STORED]
        batch = decided.starts[t + 1] - decided.starts[t]
        found = _admit(t, decided, layout, index, log, block)
        if stored < found or stored > layout.places[t]:
            return False
        decided.removed_starts[t] = removed
        at = index.words[words + FIRST]
        if layout.expire_after[t]:
            removed, at = _remove_oldest(
                t, 2 * batch + EXPIRED_ROWS, step - layout.expire_after[t], at, removed, decided, layout, index
            )
            if removed < 0:
                return False
        expired = removed - decided.removed_starts[t]
        decided.counts[t, OF_EXPIRED] = expired
        needed = decided.counts[t, NEW] - (layout.places[t] - stored) - expired
        if needed > 0:
            before = removed
            removed, _ = _remove_oldest(t, needed, step, at, removed, decided, layout, index)
            if removed != before + needed:
                return False
        decided.removed_starts[t + 1] = removed
        if not _take_places(t, decided, layout, index):
            return False
    return True
