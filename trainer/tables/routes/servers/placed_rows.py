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
    floats, positions, starts, ranges = _places_of(counts, dims)
    return Places(
        floats,
        tuple(tuple((first, stop) for first, stop in own if stop > first) for own in ranges.tolist()),
        starts,
        positions,
    )


@compiled
def _places_of(counts: Array, dims: Array) -> tuple[int, int, Array, Array]:
    """The floats, positions and starts of :class:`Places`, and the ranges of each server and width, int64 [servers, widths, 2]."""
    servers, parts = counts.shape
    widths = 0
    for p in range(parts):
        widths += p == 0 or dims[p] != dims[p - 1]
    starts, ranges = np.zeros((servers, parts), np.int64), np.zeros((servers, widths, 2), np.int64)
    at, most, first, width = 0, 0, 0, 0
    while first < parts:
        dim, stop = dims[first], first
        while stop < parts and dims[stop] == dim:
            stop += 1
        unit = dim * LINE_FLOATS  # rows of whole lines stay whole lines
        at = (at + unit - 1) // unit * unit
        for server in range(servers):
            ranges[server, width, 0] = at
            for p in range(first, stop):
                starts[server, p] = at // dim
                at += counts[server, p] * dim
            ranges[server, width, 1] = at
        most = max(most, at // dim)
        first, width = stop, width + 1
    return at, most, starts, ranges


@compiled
def _position_ids(
    places: Array, counts: Array, starts: Array, table_of_part: Array, slots: Array, offsets: Array, table_of_feature: Array, slot_base: Array
) -> Array:  # fmt: skip
    """The position of each id.

    Args:
        places, counts: the slots that servers are asked for, and their numbers [servers, parts].
        starts: see :class:`Places`.
        slots, offsets: the slot of each id, and the bags.
        slot_base: where the slots of each table begin among all of them.
    """
    positions, ids = np.zeros(len(places) + 1, np.int64), np.empty(len(slots), np.int64)
    k = 0
    for server in range(counts.shape[0]):
        for p in range(counts.shape[1]):
            at, base = starts[server, p], slot_base[table_of_part[p]]
            for _ in range(counts[server, p]):
                positions[base + places[k]] = at
                at += 1
                k += 1
    for f in range(offsets.shape[0]):
        base = slot_base[table_of_feature[f]]
        for i in range(offsets[f, 0], offsets[f, offsets.shape[1] - 1]):
            ids[i] = positions[base + slots[i]]
    return ids


def place_bags(requests: Requests, places: Places, table_of_feature: Array, table_of_part: Array) -> Bags:
    """The bags of ``requests``, whose parts are whole rows of tables, with positions in the array of its rows in place of ids."""
    reads, bags = requests.reads, requests.bags
    ids = _position_ids(
        reads.places,
        reads.counts,
        places.starts,
        table_of_part,
        bags.ids,
        bags.offsets,
        table_of_feature,
        requests.layout.row_base,
    )
    return Bags(ids, bags.offsets, bags.shares)


class PlacedRows:
    """Combines rows at their positions, and sums their gradients there; on all threads of ``team``."""

    def __init__(self, of_features: FeatureLayout, layout: TableLayout, width: int, team: Team) -> None:
        self._of_features, self._width, self._team = of_features, width, team
        self._costs = layout.dims[of_features.table]
        at_zero = np.zeros_like(layout.weight_base)
        self._layout = layout._replace(row_base=at_zero, weight_base=at_zero)  # rows are where their positions say
        self._every, self._states = np.arange(len(layout.dims)), np.ones(0, np.uint8)

    def combine(self, placed: Bags, events: int, positions: int, weights: Array, out: Array) -> None:
        """Write the activations of a batch, float32 flat, whose rows have these weights, to ``out``."""
        if len(self._states) < positions:
            self._states = np.ones(2 * positions, np.uint8)
        values = TableValues(weights, _NO_SLOTS, self._states)
        threads, tile = self._team.threads_for(len(out)), max(events, 1)
        if threads == 1:
            combine_bags(0, events, tile, placed, self._of_features, self._layout, values, out, self._width, False)
            return
        self._team.run([
            partial(combine_bags, *part, tile, placed, self._of_features, self._layout, values, out, self._width, False)
            for part in split_events(placed.offsets, self._costs, threads)
        ])  # fmt: skip

    def sum_gradients(self, placed: Bags, rows: Array, gradients: Array, sums: Array) -> None:
        """Write the gradient of each row, summed over the batch, to ``sums``.

        ``rows``: the rows of each table; ``gradients``: of the activations, flat.
        """
        sums[:] = 0.0
        if self._team.threads_for(len(gradients)) == 1:
            sum_positions(self._every, placed, self._of_features, self._layout, gradients, self._width, sums)
            return
        used = np.flatnonzero(rows)
        chosen = [used[part] for part in split_evenly(rows[used], self._team.threads)]
        self._team.run([
            partial(sum_positions, one, placed, self._of_features, self._layout, gradients, self._width, sums)
            for one in chosen
        ])  # fmt: skip
