"""Rows of a batch where they arrive: the answers of all servers are received into one array, and bags read them there, without a copy.

The array has the rows of each width together, and in a width those of each server, in the order of its message. So a server's answer goes to
one place for each width, and a row of d values begins at a multiple of d: its *position* is where it begins, divided by d.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from trainer.tables.kernels.gradients import sum_positions
from trainer.tables.kernels.layout import Bags, FeatureLayout, TableLayout, TableValues
from trainer.tables.kernels.lookup import combine_bags
from trainer.tables.kernels.memory import LINE_FLOATS
from trainer.tables.kernels.threads import Team, split_evenly, split_events
from trainer.tables.routes.partitioned.requests import Requests
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_NO_SLOTS = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Places:
    """Where the answers of servers go in the array of a batch.

    Attributes:
        floats: the length of the array.
        ranges: of each server, the first float and the float after the last one of each width, in the order of its answer.
        starts: int64 [servers, parts], the position of the first row of each part.
        positions: one more than the largest position.
    """

    floats: int
    ranges: tuple[tuple[tuple[int, int], ...], ...]
    starts: Array
    positions: int

    def views(self, server: int, values: Array) -> list[Array]:
        """The parts of an array that a server's answer fills, in its order."""
        return [values[first:stop] for first, stop in self.ranges[server]]


def places_of(counts: Array, dims: Array) -> Places:
    """The places of ``counts`` rows [servers, parts] of parts with ascending ``dims``."""
    starts = np.zeros(counts.shape, np.int64)
    ranges: list[list[tuple[int, int]]] = [[] for _ in counts]
    at, most = 0, 0
    for dim in np.unique(dims):
        of_width = np.flatnonzero(dims == dim)
        own = counts[:, of_width]
        unit = int(dim) * LINE_FLOATS  # rows of whole lines stay whole lines
        at = -(-at // unit) * unit
        before = np.cumsum(own.ravel()) - own.ravel()
        starts[:, of_width] = at // dim + before.reshape(own.shape)
        for server, rows in enumerate(own.sum(axis=1).tolist()):
            if rows:
                ranges[server].append((at, at + rows * int(dim)))
                at += rows * int(dim)
        most = max(most, at // int(dim))
    return Places(at, tuple(map(tuple, ranges)), starts, most)


@compiled
def _position_slots(places: Array, counts: Array, starts: Array, bases: Array, positions: Array) -> None:
    """Write the position of each slot; ``bases``: where the slots of each part's table begin."""
    k = 0
    for server in range(counts.shape[0]):
        for p in range(counts.shape[1]):
            at, base = starts[server, p], bases[p]
            for _ in range(counts[server, p]):
                positions[base + places[k]] = at
                at += 1
                k += 1


@compiled
def _position_ids(slots: Array, offsets: Array, bases: Array, positions: Array, out: Array) -> None:
    """The position of each id from its slot; ``bases``: where the slots of each feature's table begin."""
    for f in range(offsets.shape[0]):
        base = bases[f]
        for i in range(offsets[f, 0], offsets[f, offsets.shape[1] - 1]):
            out[i] = positions[base + slots[i]]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedBags:
    """The bags of a batch, whose ids are positions in the array of its rows, and the layout by which kernels read it."""

    bags: Bags
    layout: TableLayout


def place_bags(requests: Requests, places: Places, table_of_feature: Array, table_of_part: Array) -> PlacedBags:
    """The bags of ``requests``, whose parts are whole rows of tables."""
    layout = requests.layout
    slot_base = layout.row_base
    positions = np.zeros(max(int(layout.vocabulary.sum()), 1), np.int64)
    _position_slots(requests.reads.places, requests.reads.counts, places.starts, slot_base[table_of_part], positions)
    ids = np.empty(len(requests.bags.ids), np.int64)
    _position_ids(requests.bags.ids, requests.bags.offsets, slot_base[table_of_feature], positions, ids)
    at_zero = np.zeros_like(layout.weight_base)
    return PlacedBags(requests.bags._replace(ids=ids), layout._replace(row_base=at_zero, weight_base=at_zero))


class PlacedRows:
    """Combines rows at their positions, and sums their gradients there; on all threads of ``team``."""

    def __init__(self, of_features: FeatureLayout, layout: TableLayout, width: int, team: Team) -> None:
        self._of_features, self._width, self._team = of_features, width, team
        self._costs = layout.dims[of_features.table]

    def combine(self, placed: PlacedBags, events: int, positions: int, weights: Array, out: Array) -> None:
        """Write the activations of a batch, float32 flat, whose rows have these weights, to ``out``."""
        values = TableValues(weights, _NO_SLOTS, np.ones(positions, np.uint8))
        parts = split_events(placed.bags.offsets, self._costs, self._team.threads)
        tile = max(events, 1)
        self._team.run([
            partial(combine_bags, *part, tile, placed.bags, self._of_features, placed.layout, values, out, self._width, False)
            for part in parts
        ])  # fmt: skip

    def sum_gradients(self, placed: PlacedBags, gradients: Array, sums: Array) -> None:
        """Write the gradient of each row, summed over the batch, to ``sums``; ``gradients``: of the activations, flat."""
        sums[:] = 0.0
        rows = placed.layout.vocabulary
        used = np.flatnonzero(rows)
        chosen = [used[part] for part in split_evenly(rows[used], self._team.threads)]
        self._team.run([
            partial(sum_positions, one, placed.bags, self._of_features, placed.layout, gradients, self._width, sums)
            for one in chosen
        ])  # fmt: skip
