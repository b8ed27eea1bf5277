"""The changes of an index by decisions, each kept in the undo log before it is made."""

from __future__ import annotations

import numpy as np

from trainer.tables.kernels.undo_kernels import HEAD, ITEM_HEAD, ITEMS, ROOM, begin_block, put_start
from trainer.tables.kernels.undo_log import BESIDE
from trainer.tables.kernels.vectors import prefetch
from trainer.tables.stores.hashed.decisions import (
    NEW,
    OF_EXPIRED,
    OF_FREE,
    OF_REMOVED,
    UNADMITTED_IDS,
    UNPLACED_IDS,
    Decisions,
)
from trainer.tables.stores.hashed.entries import ENTRY_NUMBERS, add_entry, ask_for_cluster, remove_entry
from trainer.tables.stores.hashed.find import find_entry, hash_of, id_of
from trainer.tables.stores.hashed.index_layout import (
    ADMITTED,
    AFTER,
    BEFORE,
    EVICTED,
    EXPIRED,
    FREE,
    FRESH,
    ID_HIGH,
    ID_LOW,
    LAST,
    RECORD,
    STEP,
    STORED,
    UNADMITTED,
    UNPLACED,
    USE,
    WORDS,
    IndexLayout,
    IndexValues,
)
from trainer.tables.stores.hashed.use_list import append, unlink
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, uncounted

#: The arrays of an index in an undo log.
LOGGED_RECORDS, LOGGED_ENTRIES, LOGGED_WORDS, LOGGED_CANDIDATES = range(BESIDE, BESIDE + 4)
#: The numbers of the log for a record.
_RECORD_NUMBERS = ITEM_HEAD + RECORD
#: The entries that are kept for each place that gets or loses an id; more of them make the index one to rebuild after a kill.
_ENTRIES_EACH = 12
_LOW = np.int64(0xFFFFFFFF)
#: How many places ahead of their use records are asked for; entries and the records of their neighbours follow in two steps.
_AHEAD, _ENTRY_AHEAD, _CLUSTER_AHEAD = 12, 6, 3


def log_numbers(decided: Decisions) -> int:
    """The numbers of the undo log that :func:`change_index` takes for decisions."""
    tables, ids, removed = len(decided.counts), int(decided.starts[-1]), int(decided.removed_starts[-1])
    new = int(decided.counts[:, NEW].sum())
    records = 3 * (ids + removed) + tables
    return 2 * HEAD + records * _RECORD_NUMBERS + entries_kept(new + removed) * ENTRY_NUMBERS


def entries_kept(changed: int) -> int:
    """The entries that the log has space for, of so many places."""
    return _ENTRIES_EACH * changed + 64


@inlined
def _keep_record(place: int, t: int, layout: IndexLayout, records: Array, log: Array, block: int) -> None:
    """Append a record to the log; ``place`` may be that of none."""
    if place < 0 or place >= layout.places[t]:
        return
    start = (layout.first_place[t] + place) * RECORD
    items = int(log[block + ITEMS])
    at = block + HEAD + items * _RECORD_NUMBERS
    put_start(log, at, start)
    for n in range(RECORD):
        log[at + ITEM_HEAD + n] = records[start + n]
    log[block + ITEMS] = items + 1


@inlined
def _ask_for_neighbours(place: int, t: int, layout: IndexLayout, records: Array) -> None:
    """Ask for the records before and after one, wherever these are."""
    base = layout.first_place[t] - 1
    start = (base + place + 1) * RECORD
    prefetch(records, (base + int(records[start + BEFORE])) * RECORD)
    prefetch(records, (base + int(records[start + AFTER])) * RECORD)


@inlined
def _keep_around(place: int, t: int, layout: IndexLayout, records: Array, log: Array, block: int) -> None:
    """Append a record that leaves the list, and its neighbours."""
    start = (layout.first_place[t] + place) * RECORD
    _keep_record(place, t, layout, records, log, block)
    _keep_record(int(records[start + BEFORE]) - 1, t, layout, records, log, block)
    _keep_record(int(records[start + AFTER]) - 1, t, layout, records, log, block)


@uncounted
def _keep_records(t: int, decided: Decisions, layout: IndexLayout, index: IndexValues, log: Array, block: int) -> None:
    """Append all records that decisions change: whatever order they leave the list in, only these and their neighbours change."""
    records = index.records
    for k in range(decided.removed_starts[t], decided.removed_starts[t + 1]):
        _keep_around(decided.removed[k], t, layout, records, log, block)
    stop = decided.starts[t + 1]
    for k in range(decided.starts[t], stop):
        if k + _AHEAD < stop and decided.places[k + _AHEAD] >= 0 and not decided.is_new[k + _AHEAD]:
            _ask_for_neighbours(decided.places[k + _AHEAD], t, layout, records)
        if decided.is_new[k]:
            _keep_record(decided.places[k], t, layout, records, log, block)
        elif decided.places[k] >= 0:
            _keep_around(decided.places[k], t, layout, records, log, block)
    _keep_record(index.words[t * WORDS + LAST] - 1, t, layout, records, log, block)


@inlined
def _ask_for_removed(k: int, stop: int, t: int, decided: Decisions, layout: IndexLayout, index: IndexValues) -> None:
    """Ask for what the removals after the one at ``k`` read."""
    records, base = index.records, layout.first_place[t]
    if k + _ENTRY_AHEAD < stop:
        high, _ = hash_of(layout.keys[t], id_of(records, (base + decided.removed[k + _ENTRY_AHEAD]) * RECORD))
        prefetch(index.entries, layout.first_entry[t] + ((high * layout.entries[t]) >> 32))
    if k + _CLUSTER_AHEAD < stop:
        ask_for_cluster(t, id_of(records, (base + decided.removed[k + _CLUSTER_AHEAD]) * RECORD), layout, index)


@uncounted
def _remove_rows(
    t: int, decided: Decisions, layout: IndexLayout, index: IndexValues, log: Array, block: int, room: int
) -> bool:
    """Remove the rows of decisions; the places that no new id takes are free. False: the index is damaged."""
    records, words = index.records, index.words
    first, stop = decided.removed_starts[t], decided.removed_starts[t + 1]
    kept = first + decided.counts[t, OF_REMOVED]
    for k in range(first, stop):
        _ask_for_removed(k, stop, t, decided, layout, index)
        place = decided.removed[k]
        start = (layout.first_place[t] + place) * RECORD
        row = id_of(records, start)
        at = find_entry(t, row, layout, index)
        if at < 0 or not unlink(t, place, layout, index) or not remove_entry(t, at, layout, index, log, block, room):
            return False
        if k >= kept:
            records[start + USE], records[start + BEFORE] = 0, 0
            records[start + AFTER] = words[t * WORDS + FREE]
            words[t * WORDS + FREE] = place + 1
    return True


@uncounted
def _take_free(t: int, decided: Decisions, layout: IndexLayout, index: IndexValues) -> bool:
    """Take as many free places as decisions use off their list, then places that were never used."""
    counts, words = decided.counts, index.words
    for _ in range(counts[t, OF_FREE]):
        free = words[t * WORDS + FREE]
        if free < 1 or free > layout.places[t]:
            return False
        words[t * WORDS + FREE] = int(index.records[(layout.first_place[t] + free - 1) * RECORD + AFTER])
    words[t * WORDS + FRESH] += counts[t, NEW] - counts[t, OF_REMOVED] - counts[t, OF_FREE]
    return True


@uncounted
def _count(t: int, decided: Decisions, layout: IndexLayout, index: IndexValues) -> None:
    words, counts = index.words, decided.counts
    removed, expired = decided.removed_starts[t + 1] - decided.removed_starts[t], counts[t, OF_EXPIRED]
    words[t * WORDS + STORED] += counts[t, NEW] - removed
    words[t * WORDS + ADMITTED] += counts[t, NEW]
    words[t * WORDS + EXPIRED] += expired
    words[t * WORDS + EVICTED] += removed - expired
    words[t * WORDS + UNADMITTED] += counts[t, UNADMITTED_IDS]
    words[t * WORDS + UNPLACED] += counts[t, UNPLACED_IDS]


@compiled
def keep_index(decided: Decisions, layout: IndexLayout, index: IndexValues, log: Array, at: int, room: int) -> int:
    """Append the records that decisions change, and a block for so many entries before them; returns the end of the log.

    :func:`log_numbers` must be free from ``at`` on.
    """
    begin_block(log, at, LOGGED_ENTRIES, 1, room)
    block = at + HEAD + room * ENTRY_NUMBERS
    end = begin_block(log, block, LOGGED_RECORDS, RECORD, 0)
    for t in range(len(decided.counts)):
        _keep_records(t, decided, layout, index, log, block)
    log[block + ROOM] = log[block + ITEMS]
    return end + int(log[block + ITEMS]) * _RECORD_NUMBERS


@compiled
def change_index(
    decided: Decisions, layout: IndexLayout, index: IndexValues, log: Array, block: int, room: int
) -> bool:
    """Do what is decided, after :func:`keep_index`, which began at ``block``, and with the words kept. False: the index is damaged."""
    records, words = index.records, index.words
    for t in range(len(decided.counts)):
        words[t * WORDS + STEP] += 1
        if not _take_free(t, decided, layout, index) or not _remove_rows(t, decided, layout, index, log, block, room):
            return False
        use = words[t * WORDS + STEP]
        for k in range(decided.starts[t], decided.starts[t + 1]):
            place = decided.places[k]
            if place < 0:
                continue
            if decided.is_new[k]:
                start, row = (layout.first_place[t] + place) * RECORD, decided.ids[k]
                records[start + ID_LOW], records[start + ID_HIGH] = row & _LOW, row >> 32
                if not add_entry(t, row, place, layout, index, log, block, room):
                    return False
            elif not unlink(t, place, layout, index):
                return False
            append(t, place, use, layout, index)
        _count(t, decided, layout, index)
    return True
