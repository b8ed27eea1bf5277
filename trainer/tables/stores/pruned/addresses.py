"""Where the rows of pruned tables are: an address for each row that has a place, among the rows that its group shares.

Virtually hashed, physically indexed (AdaEmbed, section 4.3): a table has as many rows as its vocabulary, of which few have a place. All others are
read as one row of zeros, the last one of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainer.planning.row_groups import RowGroup
from trainer.tables.kernels.initial_rows import initial_weights
from trainer.tables.kernels.layout import Bags, FeatureLayout, TableLayout, TableValues
from trainer.tables.kernels.lookup import combine_bags
from trainer.tables.kernels.vectors import item, prefetch
from trainer.tables.stores.pruned.memory import PrunedMemory
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

#: How many ids ahead of their use addresses are asked for.
_AHEAD = 24
#: The address of a row without a place.
NO_PLACE = -1


class Addresses:
    """The places of the rows of all tables.

    Attributes:
        first_row: int64 [tables + 1], where the rows of each table begin in ``address``.
        address: int32, the place of each row in its group, or :data:`NO_PLACE`.
        group_of: int64, the group of each table.
        zero_row: int32, the row of zeros of each table's group.
        free_rows: int64, how many places of each group no row has.
        version: another number after rows have lost their places.
        touched: int64, the places of each group that rows have had since :meth:`pack`: all below this number may have values.
    """

    def __init__(self, vocabulary: Sequence[int], groups: Sequence[RowGroup], memory: PrunedMemory) -> None:
        self.first_row = np.concatenate([[0], np.cumsum(vocabulary)]).astype(np.int64)
        self.group_of = np.empty(len(vocabulary), np.int64)
        for g, group in enumerate(groups):
            self.group_of[list(group.tables)] = g
        self.rows = np.array([group.rows for group in groups], np.int64)
        self.zero_row = self.rows[self.group_of].astype(np.int32)
        self._first_free = np.cumsum(self.rows) - self.rows
        self._memory = memory
        self._address = memory.array("address", int(self.first_row[-1]), np.int32)
        self._free = memory.array("free", int(self.rows.sum()), np.int32)
        self._free_rows = memory.array("free_rows", len(groups), np.int64)
        self.address, self.free_rows = self._address.values, self._free_rows.values
        self.version, self.touched = 0, np.zeros(len(groups), np.int64)
        if memory.is_fresh:
            self.clear()

    def clear(self) -> None:
        """Take the places of all rows."""
        self.address[:] = NO_PLACE
        for g, rows in enumerate(self.rows.tolist()):
            self._of_group(g)[:] = np.arange(rows)[::-1]
        self.free_rows[:] = self.rows
        self.touched[:] = 0
        self.version += 1

    def are_whole(self) -> bool:
        """Whether each place of a group is that of one of its rows, or a free one."""
        if (self.address < NO_PLACE).any() or (self.free_rows < 0).any() or (self.free_rows > self.rows).any():
            return False
        for g, rows in enumerate(self.rows.tolist()):
            taken = np.zeros(rows, bool)
            tables = [self.of_table(t) for t in np.flatnonzero(self.group_of == g).tolist()]
            for places in (*(one[one >= 0] for one in tables), self.free(g)):
                if len(places) and (int(places.min()) < 0 or int(places.max()) >= rows):
                    return False
                taken[places] = True
            counted = sum(np.count_nonzero(one >= 0) for one in tables) + int(self.free_rows[g])
            if counted != rows or not taken.all():
                return False
        return True

    def free(self, g: int) -> Array:
        """The places of a group that no row has, int32, the next one last."""
        return self._of_group(g)[: int(self.free_rows[g])]

    def _of_group(self, g: int) -> Array:
        first = int(self._first_free[g])
        return self._free.values[first : first + int(self.rows[g])]

    def of_table(self, t: int) -> Array:
        """The addresses of a table's rows."""
        found: Array = self.address[self.first_row[t] : self.first_row[t + 1]]
        return found

    def placed(self, t: int) -> tuple[Array, Array]:
        """The rows of a table that have a place, int64 and ascending, and their places."""
        own = self.of_table(t)
        rows = np.flatnonzero(own >= 0)
        return rows, own[rows].astype(np.int64)

    def free_of(self, t: int) -> int:
        """The free places of a table's group."""
        return int(self.free_rows[self.group_of[t]])

    def release(self, t: int, rows: Array) -> None:
        """Take the places of rows of a table, each of which has one."""
        g, own = int(self.group_of[t]), self.of_table(t)
        start = int(self.free_rows[g])
        self._free.keep(self._first_free[g : g + 1] + start, len(rows))
        self._keep(t, rows)
        self._of_group(g)[start : start + len(rows)] = own[rows]
        self.free_rows[g] += len(rows)
        own[rows] = NO_PLACE
        self.version += 1

    def place(self, t: int, rows: Array) -> Array:
        """Give rows of a table that have no place free ones, in their order; returns the places, int64. There must be enough."""
        g, count = int(self.group_of[t]), len(rows)
        left = int(self.free_rows[g]) - count
        places = self._of_group(g)[left : left + count][::-1].astype(np.int64)
        self._keep(t, rows)
        self.free_rows[g] = left
        if count:
            self.touched[g] = max(self.touched[g], int(places.max()) + 1)
        self.of_table(t)[rows] = places
        return places

    def pack(self, g: int) -> list[tuple[int, Array, Array, Array]]:
        """Move the rows of a group to its first places, where these are free; so its last places are the free ones.

        Returns of each table whose rows move these rows, the places that they had, and those that they have. Nothing of it is undone.
        """
        used = int(self.rows[g] - self.free_rows[g])
        free = self.free(g)
        targets, at, moves = np.sort(free[free < used]).astype(np.int64), 0, []
        for t in np.flatnonzero(self.group_of == g).tolist():
            rows, places = self.placed(t)
            rows, before = rows[places >= used], places[places >= used]
            after = targets[at : at + len(rows)]
            at += len(rows)
            if len(rows):
                self.of_table(t)[rows] = after
                moves.append((t, rows, before, after))
        self._of_group(g)[: len(free)] = np.arange(int(self.rows[g]) - 1, used - 1, -1)
        self.touched[g] = used
        self.version += 1
        return moves

    def place_new(self, t: int, ids: Array, most: int | None = None) -> tuple[Array, Array]:
        """Give free places to the first distinct ``ids`` of a table that have none, as far as there are some, ``most`` at the most.

        Returns these rows and their places.
        """
        free = self.free_of(t) if most is None else min(self.free_of(t), most)
        rows, base = np.empty(min(free, len(ids)), np.int64), int(self.first_row[t])
        if not len(rows):
            return rows, rows
        if self._memory.is_undone:
            self._address.keep(base + ids[self.of_table(t)[ids] < 0], 1)
        found = rows[: rows_without(ids, base, self.address, len(rows), rows)]
        return found, self.place(t, found)

    def _keep(self, t: int, rows: Array) -> None:
        self._address.keep(self.first_row[t] + rows, 1)
        self._free_rows.keep(self.group_of[t : t + 1], 1)


class Lookups(NamedTuple):
    """What :func:`find_places` needs of features, int64.

    Attributes:
        first_row: where the rows of each one's table begin in ``address``.
        zero_row: the row of zeros of its table.
        sequence: the most ids of an event of a sequence feature, 0 for others.
        address: int32, the places of all rows.
    """

    first_row: Array
    zero_row: Array
    sequence: Array
    address: Array


def lookups_of(addresses: Addresses, table_of: Array, sequence: Array) -> Lookups:
    """What features with these tables need, of which sequences have so many ids of an event."""
    zero_row = addresses.zero_row[table_of].astype(np.int64)
    return Lookups(addresses.first_row[table_of], zero_row, sequence, addresses.address)


def missing_ids(ids: Array, offsets: Array, places: Array, table_of: Array, addresses: Addresses) -> Array:
    """The ids of a batch that have no place, by their ``places``; for others a number that no row has."""
    found = np.empty(len(ids), np.int64)
    for f, t in enumerate(table_of.tolist()):
        vocabulary = int(addresses.first_row[t + 1] - addresses.first_row[t])
        first, stop, zero_row = int(offsets[f, 0]), int(offsets[f, -1]), int(addresses.zero_row[t])
        keep_missing(first, stop, ids, places, zero_row, vocabulary, found)
    return found


@compiled
def find_places(
    features: Array, first_event: int, stop_event: int, ids: Array, offsets: Array, lookups: Lookups, places: Array, missing: Array
) -> None:  # fmt: skip
    """Write the place of each id of some events to ``places``, the row of zeros for one without; count those by feature in ``missing``.

    Ids after the end of a sequence are not counted.
    """
    address = lookups.address
    for f in features:
        base, zero_row, count, sequence = lookups.first_row[f], lookups.zero_row[f], 0, lookups.sequence[f]
        first, stop = offsets[f, first_event], offsets[f, stop_event]
        if sequence:
            for b in range(first_event, stop_event):
                for i in range(offsets[f, b], offsets[f, b + 1]):
                    place = address[base + ids[i]]
                    count += place < 0 and i - offsets[f, b] < sequence
                    places[i] = zero_row if place < 0 else place
            missing[f] += count
            continue
        last = max(stop - _AHEAD, first)
        for i in range(first, last):
            prefetch(address, base + item(ids, i + _AHEAD))
            place = item(address, base + item(ids, i))
            is_missing = place < 0
            count += is_missing
            places[i] = zero_row if is_missing else place
        for i in range(last, stop):
            place = item(address, base + item(ids, i))
            is_missing = place < 0
            count += is_missing
            places[i] = zero_row if is_missing else place
        missing[f] += count


@compiled
def find_and_combine(
    features: Array, first_event: int, stop_event: int, ids: Array, lookups: Lookups, missing: Array, tile_events: int, bags: Bags,
    of_features: FeatureLayout, tables: TableLayout, values: TableValues, out: Array, width: int, streams: bool,
) -> None:  # fmt: skip
    """:func:`find_places`, whose places are ``bags.ids``, and then the activations of these events in ``out``: one call of a thread."""
    find_places(features, first_event, stop_event, ids, bags.offsets, lookups, bags.ids, missing)
    combine_bags(first_event, stop_event, tile_events, bags, of_features, tables, values, out, width, streams)


@compiled
def rows_without(ids: Array, base: int, address: Array, most: int, rows: Array) -> int:
    """Write the distinct ``ids`` without a place to ``rows``, at most ``most``, and give each the address 0 for now.

    Returns how many there are.
    """
    count = 0
    for i in range(len(ids)):
        at = base + ids[i]
        if address[at] < 0:
            if count == most:
                break
            address[at] = 0
            rows[count] = ids[i]
            count += 1
    return count


@compiled
def keep_missing(first: int, stop: int, ids: Array, places: Array, zero_row: int, none: int, kept: Array) -> None:
    """Write the ids that have no place to ``kept``, and ``none`` for the others."""
    for i in range(first, stop):
        kept[i] = ids[i] if places[i] == zero_row else none


@compiled
def read_initial(
    ids: Array, offsets: Array, places: Array, zero_row: Array, group_of: Array, free: Array, tables: TableLayout, out: Array
) -> None:  # fmt: skip
    """Write the initial weights of the first ids without a place to ``out``, which has the rows of all ids, one after the other.

    Of each group as many as it has ``free`` places, which become fewer.
    """
    at = 0
    for t in range(offsets.shape[0]):
        g, dim = group_of[t], tables.dims[t]
        for i in range(offsets[t, 0], offsets[t, 1]):
            if places[i] == zero_row[t] and free[g] > 0:
                free[g] -= 1
                initial_weights(t, ids[i], tables, out, at)
            at += dim
