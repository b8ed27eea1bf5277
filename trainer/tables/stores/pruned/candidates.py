"""The rows that a round of pruning has to look at: those with places, and those without that were updated since the last round.

The last round has given its places to the most important rows, and importance only grows, in units that grow in place of its decay. So a row that had no
place then, and was not updated since, is not among as many most important rows now: a round without it finds the same ones. Only in doubt all rows are
looked at: after rows were loaded or all importance was divided, after another number of rows was kept, and where importance is scaled or drawn.

Where each place of a group has a row, a round reads the importance of places in their order, and lists but the rows that are near the cut-off: those
with a place that are not above it, and those without one that are not below it. Few rows are, and no other one changes places.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from trainer.tables.kernels.threads import Team
from trainer.tables.kernels.vectors import item, prefetch
from trainer.tables.stores.pruned.addresses import Addresses
from trainer.tables.stores.pruned.round import TableRows, row_pieces, team_map
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

#: How many rows ahead of its use importance is asked for.
_AHEAD = 16


class Candidates:
    """What is known of the rows of all tables since their last rounds.

    Args:
        addresses: of the rows.
        groups: how many groups they are in.
    """

    def __init__(self, addresses: Addresses, groups: int) -> None:
        self._addresses = addresses
        self._marks = np.zeros((int(addresses.first_row[-1]) + 7) // 8, np.uint8)
        self._kept: list[int | None] = [None] * groups

    def forget(self) -> None:
        """Look at all rows in the next round of each group."""
        self._kept = [None] * len(self._kept)

    def mark(self, ids: Array, offsets: Array, table_of: Array) -> None:
        """Rows without a place are updated: the ``ids`` of a batch that its tables have; ``table_of``: the table of each feature."""
        mark_rows(ids, offsets, table_of, self._addresses.first_row, self._marks)

    def suffice(self, group: int, kept: int) -> bool:
        """Whether a round that keeps so many rows needs to look at the candidates alone."""
        return self._kept[group] == kept

    def end_round(self, group: int, kept: int | None) -> None:
        """A round of a group has kept so many rows, the most important ones; None: fewer than it might have."""
        self._kept[group] = kept
        for t in np.flatnonzero(self._addresses.group_of == group).tolist():
            first, stop = (int(one) for one in self._addresses.first_row[t : t + 2])
            clear_marks(first, stop, self._marks)

    def of_table(self, t: int, place_base: int, of_places: Array, of_rows: Array, team: Team) -> list[TableRows]:
        """The candidates of a table, in pieces.

        Args:
            t: the table.
            place_base: where the places of its group begin.
            of_places: the importance of places.
            of_rows: that of the table's rows without a place.
            team: the threads.
        """
        address, base = self._addresses.of_table(t), int(self._addresses.first_row[t])
        found: list[TableRows] = team_map(team, [
            partial(_list_piece, t, piece.start, piece.stop, base, address, self._marks, place_base, of_places, of_rows)
            for piece in row_pieces(len(address))
        ])  # fmt: skip
        return found

    def waiting(self, t: int, of_rows: Array, team: Team, *, is_all: bool) -> list[Array]:
        """The importance of the rows of a table without a place that were updated since the last round, in pieces; ``is_all``: of all without one."""
        address, base = self._addresses.of_table(t), int(self._addresses.first_row[t])
        found: list[Array] = team_map(team, [
            partial(_list_waiting, piece.start, piece.stop, base, address, self._marks, is_all, of_rows)
            for piece in row_pieces(len(address))
        ])  # fmt: skip
        return found

    def near(
        self, t: int, low: Array, least: int, place_base: int, of_places: Array, of_rows: Array, team: Team, *, is_all: bool
    ) -> list[TableRows]:  # fmt: skip
        """The rows of a table that a cut-off may move, in pieces: of :meth:`waiting` those at or above it, and rows in low places.

        Args:
            t: the table.
            low: see :func:`low_places`.
            least: the bits of the importance at the cut-off.
            place_base, of_places, of_rows: as of :meth:`of_table`.
            team: the threads.
            is_all: as of :meth:`waiting`.
        """
        address, base = self._addresses.of_table(t), int(self._addresses.first_row[t])
        found: list[TableRows] = team_map(team, [
            partial(_list_near, t, piece.start, piece.stop, base, address, self._marks, is_all, low, least, place_base, of_places, of_rows)
            for piece in row_pieces(len(address))
        ])  # fmt: skip
        return found


def _list_piece(
    t: int, first: int, stop: int, base: int, address: Array, marks: Array, place_base: int, of_places: Array, of_rows: Array
) -> TableRows:  # fmt: skip
    rows, importance, places = (np.empty(stop - first + 1, kind) for kind in (np.int64, np.float32, np.int32))
    count = list_candidates(first, stop, base, address, marks, place_base, of_places, of_rows, rows, importance, places)
    return TableRows(t, importance[:count], places[:count], rows[:count])


def _list_waiting(
    first: int, stop: int, base: int, address: Array, marks: Array, is_all: bool, of_rows: Array
) -> Array:
    importance = np.empty(stop - first + 1, np.float32)
    return importance[: list_waiting(first, stop, base, address, marks, is_all, of_rows, importance)]


def _list_near(
    t: int, first: int, stop: int, base: int, address: Array, marks: Array, is_all: bool, low: Array, least: int, place_base: int,
    of_places: Array, of_rows: Array,
) -> TableRows:  # fmt: skip
    rows = np.empty(stop - first + 1, np.int64)
    own = rows[: list_near(first, stop, base, address, marks, is_all, low, least, of_rows.view(np.uint32), rows)]
    places = address[own]
    importance = np.where(places >= 0, of_places[place_base + np.maximum(places, 0)], of_rows[own])
    return TableRows(t, importance, places, own)


def low_places(bits: Array, least: int) -> Array:
    """A bit for each place, set where the bits of importance are at most ``least``; the first byte is for rows without a place, and has none."""
    return np.concatenate([np.zeros(1, np.uint8), np.packbits(bits <= np.uint32(least), bitorder="little")])


@compiled
def list_waiting(
    first: int, stop: int, base: int, address: Array, marks: Array, is_all: bool, of_rows: Array, importance: Array
) -> int:  # fmt: skip
    """List the importance of rows that have no place and are marked, or of all without one; returns how many there are."""
    count, r = 0, first
    while r < stop:
        at = base + r
        bits = np.int64(255) if is_all else np.int64(marks[at >> 3]) >> (at & 7)
        last = min(r + 8 - (at & 7), stop)
        if bits == 0:
            r = last
        while r < last:
            importance[count] = of_rows[r]
            count += (item(address, r) < 0) & (bits & 1)
            bits >>= 1
            r += 1
    return count


@compiled
def list_near(
    first: int, stop: int, base: int, address: Array, marks: Array, is_all: bool, low: Array, least: int, bits_of_rows: Array, rows: Array
) -> int:  # fmt: skip
    """List the rows in low places, and of :func:`list_waiting` those of at least the importance ``least``; returns how many there are."""
    count, r = 0, first
    while r < stop:
        at = base + r
        bits = np.int64(255) if is_all else np.int64(marks[at >> 3]) >> (at & 7)
        last = min(r + 8 - (at & 7), stop)
        if bits == 0:
            while r < last:  # without a branch by row, which would be as good as random
                place = item(address, r) + 8
                rows[count] = r
                count += (low[place >> 3] >> (place & 7)) & 1
                r += 1
        while r < last:
            place = item(address, r) + 8
            rows[count] = r
            is_low = (low[place >> 3] >> (place & 7)) & 1
            count += is_low | ((bits & 1) & (place < 8) & (bits_of_rows[r] >= least))
            bits >>= 1
            r += 1
    return count


@compiled
def mark_rows(ids: Array, offsets: Array, table_of: Array, first_row: Array, marks: Array) -> None:
    """Mark the ids of a batch that are rows of their tables; each row has a bit."""
    for f in range(offsets.shape[0]):
        base = first_row[table_of[f]]
        size = first_row[table_of[f] + 1] - base
        for i in range(offsets[f, 0], offsets[f, offsets.shape[1] - 1]):
            if ids[i] < size:
                at = base + ids[i]
                marks[at >> 3] |= np.uint8(1 << (at & 7))


@compiled
def clear_marks(first: int, stop: int, marks: Array) -> None:
    """Unmark the rows from ``first`` to ``stop``."""
    at = first
    while at < stop:
        if at & 7 == 0 and at + 8 <= stop:
            marks[at >> 3] = 0
            at += 8
        else:
            marks[at >> 3] &= np.uint8(255 ^ (1 << (at & 7)))
            at += 1


@compiled
def list_candidates(
    first: int, stop: int, base: int, address: Array, marks: Array, place_base: int, of_places: Array, of_rows: Array, rows: Array,
    importance: Array, places: Array,
) -> int:  # fmt: skip
    """List the rows of a table that have places or are marked, with their importance and addresses; returns how many there are."""
    count, r = 0, first
    while r < stop:
        at = base + r
        bits = marks[at >> 3] >> (at & 7)
        last = min(r + 8 - (at & 7), stop)
        while r < last:  # without a branch by row, which would be as good as random
            place = item(address, r)
            rows[count], places[count] = r, place
            count += (place >= 0) | (bits & 1)
            bits >>= 1
            r += 1
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(of_places, place_base + max(item(places, i + _AHEAD), 0))
        importance[i] = of_places[place_base + places[i]] if places[i] >= 0 else of_rows[rows[i]]
    return count
