"""The loops that change the list of rows by last use, and an index rebuilt from its records."""

from __future__ import annotations

import numpy as np

from trainer.tables.stores.hashed.find import hash_of, id_of, sort_by
from trainer.tables.stores.hashed.index_layout import (
    AFTER,
    BEFORE,
    FIRST,
    FREE,
    FRESH,
    LAST,
    RECORD,
    STEP,
    STORED,
    USE,
    WORDS,
    IndexLayout,
    IndexValues,
)
from transforms.kernels.compiled import compiled, inlined, uncounted


@uncounted
def unlink(t: int, place: int, layout: IndexLayout, index: IndexValues) -> bool:
    """Take a place out of the list by last use. False: the index is damaged."""
    records, words, base = index.records, index.words, layout.first_place[t] - 1
    start, most = (base + place + 1) * RECORD, layout.places[t]
    before, after = int(records[start + BEFORE]), int(records[start + AFTER])
    if before > most or after > most:
        return False
    if before:
        records[(base + before) * RECORD + AFTER] = after
    else:
        words[t * WORDS + FIRST] = after
    if after:
        records[(base + after) * RECORD + BEFORE] = before
    else:
        words[t * WORDS + LAST] = before
    return True


@inlined
def append(t: int, place: int, use: int, layout: IndexLayout, index: IndexValues) -> None:
    """Make a place the last one of the list, used at this step."""
    records, words, base = index.records, index.words, layout.first_place[t] - 1
    start, last = (base + place + 1) * RECORD, words[t * WORDS + LAST]
    records[start + USE], records[start + BEFORE], records[start + AFTER] = use, last, 0
    if last:
        records[(base + last) * RECORD + AFTER] = place + 1
    else:
        words[t * WORDS + FIRST] = place + 1
    words[t * WORDS + LAST] = place + 1


@compiled
def rebuild(t: int, layout: IndexLayout, index: IndexValues) -> bool:
    """Make the hash table, the list, and the free places of a table from its records. False: an id is there twice, or out of range.

    Equal records give an index of equal answers: rows stand in the list by last use, then by id.
    """
    records, words, base, most = index.records, index.words, layout.first_place[t], layout.places[t]
    first, count, bits = layout.first_entry[t], layout.entries[t], layout.place_bits[t]
    index.entries[first : first + count] = 0
    stored, fresh = 0, 0
    for place in range(most):
        if records[(base + place) * RECORD + USE]:
            stored += 1
            fresh = place + 1
    ids, uses, order, order_2 = (
        np.empty(stored, np.int64),
        np.empty(stored, np.int64),
        np.empty(stored, np.int64),
        np.empty(stored, np.int64),
    )
    free, at = 0, 0
    for place in range(fresh - 1, -1, -1):
        start = (base + place) * RECORD
        if not records[start + USE]:
            records[start + BEFORE], records[start + AFTER] = 0, free
            free = place + 1
            continue
        row = id_of(records, start)
        if row < 0 or row >= layout.vocabulary[t]:
            return False
        ids[at], order[at] = row, place
        at += 1
    sort_by(ids, order, uses, order_2, 0, stored)
    for k in range(stored):
        if k and ids[k] == ids[k - 1]:
            return False
        uses[k] = records[(base + order[k]) * RECORD + USE]
    sort_by(uses, order, ids, order_2, 0, stored)
    words[t * WORDS + FREE], words[t * WORDS + FRESH], words[t * WORDS + STORED] = free, fresh, stored
    words[t * WORDS + FIRST] = words[t * WORDS + LAST] = 0
    for k in range(stored):
        start = (base + order[k]) * RECORD
        append(t, order[k], int(records[start + USE]), layout, index)
        high, low = hash_of(layout.keys[t], id_of(records, start))
        mask, entry = (np.int64(1) << bits) - 1, (high * count) >> 32
        while index.entries[first + entry]:
            entry += 1
            if entry == count:
                entry = 0
        index.entries[first + entry] = (low & ~mask) | (order[k] + 1)
    if stored:
        words[t * WORDS + STEP] = max(words[t * WORDS + STEP], uses[stored - 1])
    return True
