"""A sketch of the rows that are looked up: bounded memory, however many rows and ids there are.

Two tables with open addressing. The *sample* has the exact counts of the rows whose hash is a multiple of a power of two, which
doubles when the table is full: a row that is in it was in it from its first id on. The *heavy* rows are those of the
Misra-Gries algorithm, which loses half of its rows, and the median of all counts, when its table is full. A new row with one id in a batch does not
fill the last quarter: the loss that such rows cause comes once, at the batch's end. A table has its rows one
after another, with twice as many slots that have their places: few bytes are touched, and a full table is shortened in one pass.
A row has its ids, and the number of batches that hold it since it came into the table.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trainer.planning.row_frequencies import HEAD_ROWS, RowFrequencies
from trainer.planning.row_sample import RowSample
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_SAMPLE_ROWS: Final = 4096
_HEAVY_ROWS: Final = 2048
_LEVEL, _SAMPLED, _HEAVY, _LOST = range(4)
_FREE: Final = -1
#: Ids of tables with at most so many rows are counted by row, in 4 bytes per row.
_SMALL_ROWS: Final = 1 << 20
#: The memory of a sketch: of a row 24 bytes, and two slots of 4.
SKETCH_BYTES: Final = 32 * (_SAMPLE_ROWS + _HEAVY_ROWS) + 32


class RowSketch:
    """The rows of one feature; ``rows``: those of its table."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._ids = 0
        self._sample, self._sample_slots = _table(_SAMPLE_ROWS)
        self._heavy, self._heavy_slots = _table(_HEAVY_ROWS)
        self._state = np.zeros(4, np.int64)

    def add(self, rows: Array, counts: Array, residues: Array) -> None:
        """Add distinct rows, int64, and the ids of each, int64; and to ``residues``, the ids by the row modulo their number."""
        tables = self._sample, self._sample_slots, self._heavy, self._heavy_slots
        self._ids += _add_rows(rows, counts, residues, *tables, self._state)

    def frequencies(self) -> RowFrequencies:
        """The frequencies of all rows."""
        if not self._ids:
            return RowFrequencies(self._rows)
        lost = int(self._state[_LOST])
        heavy, counts = self._heavy[:2, : self._state[_HEAVY]]
        # A row that was lost and came again has more ids than are known: such a row is left to the sample.
        kept = counts >= lost
        heavy, counts = heavy[kept], counts[kept] + lost
        exact = self._sample[1, : self._state[_SAMPLED]]
        is_light = np.ones(len(exact), np.bool_)
        _use_exact(heavy, counts, self._sample, self._sample_slots, is_light)
        estimated = _by_count(exact[is_light], float(1 << int(self._state[_LEVEL])))
        rest = _calibrated(estimated, max(self._ids - int(counts.sum()), 0))
        ranked = np.lexsort((heavy, -counts))
        for count, number in _by_count(counts[ranked[HEAD_ROWS:]], 1.0).items():
            rest[count] = rest.get(count, 0.0) + number
        head = ranked[:HEAD_ROWS]
        return RowFrequencies.of_sample(
            self._rows, dict(zip(heavy[head].tolist(), counts[head].tolist(), strict=True)), rest, self._ids
        )

    def sample(self) -> RowSample:
        """The sampled rows and the heavy ones, with their ids and batches."""
        counts = {
            row: (float(ids), float(min(batches, ids)))  # the ids of a heavy row have lost some, its batches none
            for table, used in (
                (self._heavy, _HEAVY),
                (self._sample, _SAMPLED),
            )  # of a row in both, the sample is exact
            for row, ids, batches in table[:, : self._state[used]].T.tolist()
        }
        return RowSample.of_counts(int(self._state[_LEVEL]), float(self._ids), counts)


def _by_count(counts: Array, weight: float) -> dict[int, float]:
    """The number of rows with each count, times ``weight``."""
    found, numbers = np.unique(counts, return_counts=True)
    return dict(zip(found.tolist(), (numbers * weight).tolist(), strict=True))


def _calibrated(rows_by_count: dict[int, float], ids: int) -> dict[int, float]:
    """Estimated numbers of rows, changed so that they have ``ids`` ids: the more, the larger their variance is.

    Few rows with many ids cause most of the error of a sample, so the numbers of rows with few ids hardly change.
    """
    error = ids - sum(count * number for count, number in rows_by_count.items())
    variance = sum(count * count * number for count, number in rows_by_count.items())
    factor = error / variance if variance else 0.0
    changed = {count: number * max(1.0 + factor * count, 0.0) for count, number in rows_by_count.items()}
    total = sum(count * number for count, number in changed.items())
    return {count: number * ids / total for count, number in changed.items() if number > 0.0 and ids}


class IdCounter:
    """Counts the distinct ids of a batch, in memory that is used again: by row of a small table, else in a hash table."""

    def __init__(self, rows: int) -> None:
        self._is_small = rows <= _SMALL_ROWS
        self._numbers = np.zeros(rows if self._is_small else 0, np.int32)
        self._slots = np.full((1, 2), _FREE, np.int64)
        self._found = np.zeros((3, 1), np.int64)

    def count(self, ids: Array) -> tuple[Array, Array]:
        """The distinct ids, int64, and how often each occurs, int64, in the order of their first occurrence; valid until the next call."""
        if len(ids) > self._found.shape[1]:
            size = 1 << (len(ids) - 1).bit_length()
            self._found = np.zeros((3, size), np.int64)
            if not self._is_small:
                self._slots = np.full((2 * size, 2), _FREE, np.int64)
        if self._is_small:
            found = _count_small(ids, self._numbers, self._found)
        else:
            found = _count_ids(ids, self._slots, self._found)
        return self._found[0, :found], self._found[1, :found]


def _table(rows: int) -> tuple[Array, Array]:
    """An empty table, the rows with their counts and batches, and its slots; ``rows``: a power of two."""
    return np.zeros((3, rows), np.int64), np.full(2 * rows, _FREE, np.int32)


@compiled
def _hash(row: int) -> int:
    mixed = np.uint64(row) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1))  # type: ignore[return-value]


@compiled
def _insert(table: Array, slots: Array, used: int, row: int, hashed: int, count: int) -> int:
    """Add a batch with ``count`` ids to a row with this hash in a table that has ``used`` rows; 1 if it is new. The table must have a free slot."""
    mask = slots.shape[0] - 1
    slot = (hashed >> 24) & mask
    while slots[slot] != -1:
        if table[0, slots[slot]] == row:
            table[1, slots[slot]] += count
            table[2, slots[slot]] += 1
            return 0
        slot = (slot + 1) & mask
    slots[slot] = used
    table[0, used], table[1, used], table[2, used] = row, count, 1
    return 1


@compiled
def _count_small(ids: Array, numbers: Array, found: Array) -> int:
    """Count the distinct ids, into their row and number; how many they are. ``numbers`` is 0 before and after."""
    distinct = 0
    for k in range(ids.shape[0]):
        row = np.int64(ids[k])
        found[0, distinct] = row
        distinct += 1 if numbers[row] == 0 else 0
        numbers[row] += 1
        if distinct == found.shape[1]:  # all ids are distinct: none follows
            break
    for k in range(distinct):
        found[1, k] = numbers[found[0, k]]
        numbers[found[0, k]] = 0
    return distinct


@compiled
def _count_ids(ids: Array, slots: Array, found: Array) -> int:
    """Count the distinct ids, into their row, number and slot; how many they are. ``slots``, of id and number, is free before and after."""
    mask, distinct = slots.shape[0] - 1, 0
    for k in range(ids.shape[0]):
        row = np.int64(ids[k])
        slot = np.int64((np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
        while slots[slot, 0] != -1 and slots[slot, 0] != row:
            slot = (slot + 1) & mask
        if slots[slot, 0] == -1:
            slots[slot, 0], slots[slot, 1] = row, 0
            found[0, distinct], found[2, distinct] = row, slot
            distinct += 1
        slots[slot, 1] += 1
    for k in range(distinct):
        slot = found[2, k]
        found[1, k] = slots[slot, 1]
        slots[slot, 0] = -1
    return distinct


@compiled
def _place(table: Array, slots: Array, row: int, hashed: int) -> int:
    """The place of a row in a table; -1 if it is not there."""
    mask = slots.shape[0] - 1
    slot = (hashed >> 24) & mask
    while slots[slot] != -1 and table[0, slots[slot]] != row:
        slot = (slot + 1) & mask
    return slots[slot]  # type: ignore[no-any-return]


@compiled
def _use_exact(rows: Array, counts: Array, sample: Array, slots: Array, is_light: Array) -> None:
    """Replace the counts of sampled rows by exact ones, and mark these rows of the sample as not light."""
    for k in range(rows.shape[0]):
        place = _place(sample, slots, rows[k], _hash(rows[k]))
        if place >= 0:
            counts[k] = sample[1, place]
            is_light[place] = False


@compiled
def _add_rows(
    rows: Array,
    counts: Array,
    residues: Array,
    sample: Array,
    sample_slots: Array,
    heavy: Array,
    heavy_slots: Array,
    state: Array,
) -> int:
    """Add rows to both tables, whose numbers of rows are in ``state``; the number of ids."""
    level, sampled, used = state[0], state[1], state[2]
    most_used, missed, ids = heavy.shape[1] * 3 // 4, False, 0
    for k in range(rows.shape[0]):
        row, hashed = rows[k], _hash(rows[k])
        residues[row % residues.shape[0]] += counts[k]
        ids += counts[k]
        if hashed & ((np.int64(1) << level) - 1) == 0:
            sampled += _insert(sample, sample_slots, sampled, row, hashed, counts[k])
            while sampled == sample.shape[1]:
                level += 1
                sampled = _shorten(sample, sample_slots, sampled, level, 0)
        if counts[k] == 1 and used >= most_used:
            place = _place(heavy, heavy_slots, row, hashed)
            if place >= 0:
                heavy[1, place] += 1
            else:
                missed = True
        else:
            used += _insert(heavy, heavy_slots, used, row, hashed, counts[k])
            if used == heavy.shape[1]:
                used = _lose_half(heavy, heavy_slots, used, state)
    if missed:
        used = _lose_half(heavy, heavy_slots, used, state)
    state[0], state[1], state[2] = level, sampled, used
    return ids


@compiled
def _lose_half(table: Array, slots: Array, used: int, state: Array) -> int:
    """Subtract the median of the counts from all, and keep the rows that have more. Their number."""
    loss = _median(table[1, :used])
    state[3] += loss
    return _shorten(table, slots, used, 0, loss)


@compiled
def _median(counts: Array) -> int:
    """The upper median. Most counts are small: their numbers are counted, and only a larger median needs a sort."""
    numbers = np.zeros(64, np.int64)
    for k in range(counts.shape[0]):
        numbers[min(counts[k], 63)] += 1
    below = 0
    for count in range(63):
        below += numbers[count]
        if below > counts.shape[0] // 2:
            return count
    return np.sort(counts)[counts.shape[0] // 2]  # type: ignore[no-any-return]


@compiled
def _shorten(table: Array, slots: Array, used: int, level: int, loss: int) -> int:
    """Keep the ``used`` rows of a table whose hash ends in ``level`` zeros and that have more than ``loss``, without it. Their number."""
    slots[:] = -1
    mask, kept = slots.shape[0] - 1, 0
    for k in range(used):
        row, count, batches = table[0, k], table[1, k] - loss, table[2, k]
        if count > 0:
            hashed = _hash(row)
            if hashed & ((np.int64(1) << level) - 1) == 0:
                slot = (hashed >> 24) & mask
                while slots[slot] != -1:
                    slot = (slot + 1) & mask
                slots[slot] = kept
                table[0, kept], table[1, kept], table[2, kept] = row, count, batches
                kept += 1
    return kept
