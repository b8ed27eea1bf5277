"""The index of hashed tables: which place has which id, in arrays without pointers, so that a snapshot is a copy of memory.

A *place* is a row of the arrays of weights and slots. Its record has its id, the step of its last use, and its neighbours in the list
of all rows by last use. A hash table with open addressing has the places by id: linear probing from the hash of the id, at most four
fifths full, and entries without gaps, since a removal moves later ones back. An entry is a place and, in the bits that places do not need, a part of
the hash, so that few records of other ids are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainer.tables.kernels.memory import TableMemory
from trainer.tables.stores.hashed.options import WAYS, HashedTable
from transforms.arrays import Array

#: The uint32 values of a record: the id in two, the step of the last use (0: the place is free), and 1 + the places before and after
#: it in the list by last use, 0 at its ends. A free place has the next free place as the one after it.
ID_LOW, ID_HIGH, USE, BEFORE, AFTER, RECORD = range(6)

#: The int64 words of a table. ``FIRST`` and ``LAST`` are the ends of the list, ``FREE`` the first of the free places, all as 1 + place;
#: places from ``FRESH`` on were never used.
STEP, FIRST, LAST, FREE, FRESH, STORED, ADMITTED, EVICTED, EXPIRED, UNADMITTED, UNPLACED, WORDS = range(12)

#: The words of the index as a whole.
NEEDS_REBUILD, MARKS = range(2)


class IndexLayout(NamedTuple):
    """Tables by their positions, int64 unless said otherwise.

    Attributes:
        places: the places of each table.
        first_place: where the places of each table begin among all.
        entries: the entries of each hash table.
        first_entry: where they begin.
        place_bits: the bits of an entry that are 1 + a place; the others are of the hash.
        vocabulary: the limit of the ids of each table.
        keys: uint64, what the ids of each table are hashed with.
        admit_after, expire_after: see :class:`~trainer.tables.stores.hashed.options.HashedTable`.
        lines: the cache lines of candidates of each table.
        first_candidate: where its candidates begin.
        candidate_steps: see :class:`~trainer.tables.stores.hashed.options.HashedTable`.
    """

    places: Array
    first_place: Array
    entries: Array
    first_entry: Array
    place_bits: Array
    vocabulary: Array
    keys: Array
    admit_after: Array
    expire_after: Array
    lines: Array
    first_candidate: Array
    candidate_steps: Array


class IndexValues(NamedTuple):
    """What updates change.

    Attributes:
        records: uint32, :data:`RECORD` values of each place.
        entries: uint32, the hash tables; 0: an entry without a place.
        words: int64, :data:`WORDS` of each table.
        candidates: uint64, counted ids: 32 bits of the hash, 24 of the step of the last update, 8 of the count; 0: none.
        marks: int64, :data:`MARKS` words of the index, which no undo changes.
    """

    records: Array
    entries: Array
    words: Array
    candidates: Array
    marks: Array


def index_layout(tables: Sequence[HashedTable], keys: Array) -> IndexLayout:
    """The layout of the index of ``tables``; ``keys``: uint64, what the ids of each are hashed with."""

    def of(attribute: str) -> Array:
        return np.array([getattr(table, attribute) for table in tables], np.int64)

    places, lines = of("places"), of("candidate_lines")
    entries = places + places // 4 + 1
    return IndexLayout(
        places=places,
        first_place=_starts(places),
        entries=entries,
        first_entry=_starts(entries),
        place_bits=np.array([int(one).bit_length() for one in places], np.int64),
        vocabulary=np.array([table.spec.vocabulary_size for table in tables], np.int64),
        keys=keys,
        admit_after=of("admit_after"),
        expire_after=of("expire_after_steps"),
        lines=lines,
        first_candidate=_starts(lines * WAYS),
        candidate_steps=of("candidate_steps"),
    )


def index_values(layout: IndexLayout, memory: TableMemory, *, is_fresh: bool) -> IndexValues:
    """The values of an index in ``memory``; fresh ones have no ids. Raises MemoryError where the system refuses memory of this size."""
    tables = np.arange(len(layout.places))
    one = np.zeros(1, np.int64)
    return IndexValues(
        *(
            memory.array(f"index_{name}", starts, sizes, dtype, is_fresh=is_fresh, in_place=True)
            for name, starts, sizes, dtype in (
                ("records", layout.first_place * RECORD, layout.places * RECORD, np.uint32),
                ("entries", layout.first_entry, layout.entries, np.uint32),
                ("words", tables * WORDS, np.full(len(tables), WORDS), np.int64),
                ("candidates", layout.first_candidate, layout.lines * WAYS, np.uint64),
                ("marks", one, one + MARKS, np.int64),
            )
        )
    )


def _starts(sizes: Array) -> Array:
    starts: Array = np.cumsum(sizes) - sizes
    return starts
