"""A sketch of the rows that are looked up: bounded memory, however many rows and ids there are.

Two tables with open addressing. The *sample* has the exact counts of the rows whose hash is a multiple of a power of two, which
doubles when the table is half full: a row that is in it was in it from its first id on. The *heavy* rows are those of the
Misra-Gries algorithm, which loses half of its rows, and the median of all counts, when its table is half full.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from trainer.planning.row_frequencies import HEAD_ROWS, RowFrequencies
from transforms.kernels.compiled import compiled

Array = np.ndarray[Any, np.dtype[Any]]

_SAMPLE_SLOTS: Final = 8192
_HEAVY_SLOTS: Final = 4096
_LEVEL, _SAMPLED, _HEAVY, _LOST = range(4)
_FREE: Final = -1
#: The memory of a sketch.
SKETCH_BYTES: Final = 16 * (_SAMPLE_SLOTS + _HEAVY_SLOTS) + 32


class RowSketch:
    """The rows of one feature; ``rows``: those of its table."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._ids = 0
        self._sample = _table(_SAMPLE_SLOTS)
        self._heavy = _table(_HEAVY_SLOTS)
        self._state = np.zeros(4, np.int64)

    def add(self, rows: Array, counts: Array) -> None:
        """Add distinct rows, int64, and the ids of each, int64."""
        self._ids += int(counts.sum())
        _add_rows(rows, counts, self._sample, self._heavy, self._state)

    def frequencies(self) -> RowFrequencies:
        """The frequencies of all rows."""
        if not self._ids:
            return RowFrequencies(self._rows)
        sampled = _content(self._sample)
        lost = int(self._state[_LOST])
        # A row that was lost and came again has more ids than are known: such a row is left to the sample.
        heavy = {row: count + lost for row, count in _content(self._heavy).items() if count >= lost}
        ordered = sorted(heavy.items(), key=lambda item: (-sampled.get(item[0], item[1]), item[0]))
        known = {row: sampled.get(row, count) for row, count in ordered}
        light: dict[int, float] = {}
        for row, count in sampled.items():
            if row not in known:
                light[count] = light.get(count, 0.0) + 1.0
        estimated = {count: number * float(1 << int(self._state[_LEVEL])) for count, number in light.items()}
        rest = _calibrated(estimated, max(self._ids - sum(known.values()), 0))
        for row, _ in ordered[HEAD_ROWS:]:
            rest[known[row]] = rest.get(known[row], 0.0) + 1.0
        head = {row: known[row] for row, _ in ordered[:HEAD_ROWS]}
        return RowFrequencies.of_sample(self._rows, head, rest, self._ids)


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


def distinct_counts(ids: Array) -> tuple[Array, Array]:
    """The distinct ids, int64, and how often each occurs, int64; in the order of a hash table."""
    slots = 1 << max(int(2 * len(ids) - 1).bit_length(), 1)
    table = _table(slots)
    _count_ids(ids, table)
    used = np.flatnonzero(table[0] != _FREE)
    return table[0][used], table[1][used]


def _table(slots: int) -> Array:
    """An empty table: rows, and their counts."""
    table = np.zeros((2, slots), np.int64)
    table[0] = _FREE
    return table


def _content(table: Array) -> dict[int, int]:
    used = table[0] != _FREE
    return dict(zip(table[0][used].tolist(), table[1][used].tolist(), strict=True))


@compiled
def _hash(row: int) -> int:
    mixed = np.uint64(row) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1))  # type: ignore[return-value]


@compiled
def _insert(table: Array, row: int, count: int) -> int:
    """Add ``count`` to a row; 1 if it is new. The table must have a free slot."""
    mask = table.shape[1] - 1
    slot = (_hash(row) >> 24) & mask
    while table[0, slot] != -1 and table[0, slot] != row:
        slot = (slot + 1) & mask
    is_new = 1 if table[0, slot] == -1 else 0
    table[0, slot] = row
    table[1, slot] += count
    return is_new


@compiled
def _count_ids(ids: Array, table: Array) -> None:
    for k in range(ids.shape[0]):
        _insert(table, int(ids[k]), 1)


@compiled
def _add_rows(rows: Array, counts: Array, sample: Array, heavy: Array, state: Array) -> None:
    for k in range(rows.shape[0]):
        row = rows[k]
        if _hash(row) & ((np.int64(1) << state[0]) - 1) == 0:
            state[1] += _insert(sample, row, counts[k])
            while 2 * state[1] > sample.shape[1]:
                state[0] += 1
                state[1] = _keep_level(sample, state[0])
        state[2] += _insert(heavy, row, counts[k])
        if 2 * state[2] > heavy.shape[1]:
            used = np.sort(heavy[1][heavy[0] != -1])
            loss = used[used.shape[0] // 2]
            state[3] += loss
            state[2] = _lose(heavy, loss)


@compiled
def _keep_level(table: Array, level: int) -> int:
    """Keep the rows whose hash ends in ``level`` zeros; their number."""
    rows, counts = table[0].copy(), table[1].copy()
    table[0, :] = -1
    table[1, :] = 0
    kept = 0
    for k in range(rows.shape[0]):
        if rows[k] != -1 and _hash(rows[k]) & ((np.int64(1) << level) - 1) == 0:
            kept += _insert(table, rows[k], counts[k])
    return kept


@compiled
def _lose(table: Array, loss: int) -> int:
    """Subtract from every count; keep the rows with more. Their number."""
    rows, counts = table[0].copy(), table[1].copy()
    table[0, :] = -1
    table[1, :] = 0
    kept = 0
    for k in range(rows.shape[0]):
        if rows[k] != -1 and counts[k] > loss:
            kept += _insert(table, rows[k], counts[k] - loss)
    return kept
