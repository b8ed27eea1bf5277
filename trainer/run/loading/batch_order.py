"""Which events each batch of a stream has. Pure.

The batches of an epoch are those that ``headrace train`` makes of it: contiguous events in order of time, or drawn from windows of shuffled events
(:mod:`trainer.run.reading.shuffling`). A batch is computed from its number alone, so any share of them can be read, from any batch on.

*Lanes* change the order of an epoch's batches and nothing else: each lane is a contiguous part of them, and lanes take turns. With as many lanes
as there are shares, each share reads fragments that the others do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainer.run.preparation.due_places import DuePlaces
from trainer.run.preparation.job_plan import JobPlan
from trainer.run.reading.shuffling import ShuffleWindow
from trainer.scheduling.batch_parts import BatchParts
from trainer.scheduling.work_units import cumulated
from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class FragmentRows:
    """Some stored events of a fragment: its number in the plan, and the events, int64, ascending."""

    fragment: int
    rows: Array


@dataclass(frozen=True, slots=True)
class _Epoch:
    """The batches of a natural epoch; ``number``: that of its shuffled windows."""

    parts: BatchParts
    number: int


class BatchOrder:
    """The batches of a plan by their number in the order of the stream.

    Args:
        plan: what is left to hand out.
        lanes: see :class:`~trainer.run.loading.options.StreamOptions`.
    """

    def __init__(self, plan: JobPlan, batch_rows: int, seed: int, lanes: int) -> None:
        self._units, self._seed, self.lanes = plan.units, seed, lanes
        self._window_rows = plan.shuffle_events
        self._places = DuePlaces(plan, counts_before(plan))
        self._epochs = _epochs_of(plan, batch_rows)
        self._starts = cumulated(np.array([one.parts.batches for one in self._epochs], np.int64))
        self._drawn = lru_cache(lanes + 1)(self._draw)

    @property
    def batches(self) -> int:
        """The batches of the stream."""
        return int(self._starts[-1])

    def events(self, number: int) -> list[FragmentRows]:
        """The events of a batch, in the order of time."""
        position, at = self._at(number)
        parts = self._epochs[position].parts
        first, stop = parts.batch(at)
        if not self._window_rows:
            return self._rows_at(self._places.of(np.arange(first, stop)))
        window, begin = divmod(first - parts.first, self._window_rows)
        drawn = self._drawn(position, window)
        return self._rows_at(np.sort(drawn[begin : begin + stop - first]))

    def fragments(self, number: int) -> range:
        """The fragments that a batch needs, by their numbers: those of its events, or of all events of its window."""
        position, at = self._at(number)
        parts = self._epochs[position].parts
        first, stop = parts.batch(at)
        if self._window_rows:
            begin = parts.first + (first - parts.first) // self._window_rows * self._window_rows
            first, stop = begin, min(begin + self._window_rows, parts.stop)
        return self._between(first, stop)

    def _between(self, first: int, stop: int) -> range:
        starts = self._units.due_starts
        low, high = np.searchsorted(starts, [first, stop - 1], side="right") - 1
        # Fragments have numbers in the order in which an epoch has them, and a stream has one pass.
        return range(int(self._units.fragment[low]), int(self._units.fragment[high]) + 1)

    def _at(self, number: int) -> tuple[int, int]:
        """The position of a batch's epoch, and its number there in order of time."""
        position = int(np.searchsorted(self._starts, number, side="right")) - 1
        turn = number - int(self._starts[position])
        return position, in_lanes(turn, self._epochs[position].parts.batches, self.lanes)

    def _draw(self, position: int, number: int) -> Array:
        """The places of the events of a window, in the order in which they are drawn."""
        epoch = self._epochs[position]
        first = epoch.parts.first + number * self._window_rows
        places = self._places.of(np.arange(first, min(first + self._window_rows, epoch.parts.stop)))
        window = ShuffleWindow(self._window_rows, self._seed, epoch.number, number)
        return np.asarray(places[window.order(places)])

    def _rows_at(self, places: Array) -> list[FragmentRows]:
        """The stored events at some places, ascending, by fragment."""
        units = self._units
        low, high = units.stretch_of(int(places[0])), units.stretch_of(int(places[-1]))
        cuts = [0, *np.searchsorted(places, units.row_starts[low + 1 : high + 1]).tolist(), len(places)]
        found: list[FragmentRows] = []
        for stretch, begin, end in zip(range(low, high + 1), cuts[:-1], cuts[1:], strict=True):
            if begin == end:
                continue
            rows = places[begin:end] - units.row_starts[stretch] + int(units.first_row[stretch])
            fragment = int(units.fragment[stretch])
            if found and found[-1].fragment == fragment:
                rows = np.concatenate([found.pop().rows, rows])
            found.append(FragmentRows(fragment, rows))
        return found


def in_lanes(turn: int, batches: int, lanes: int) -> int:
    """The batch, in order of time, that has the ``turn`` if batches are in so many lanes which take turns.

    Lanes have equally many batches, or the first ones have one more.
    """
    lanes = min(lanes, batches)
    size, longer = divmod(batches, lanes)
    at, lane = divmod(turn, lanes)
    return lane * size + min(lane, longer) + at


def counts_before(plan: JobPlan) -> Callable[[str], Array]:
    """How often each stored event of a fragment, by its key, was handed out before a plan, uint8."""
    known = {} if plan.counts is None else {fragment.key: counts for fragment, counts in plan.counts.counts()}
    rows = dict(zip(plan.units.keys, plan.fragment_rows.tolist(), strict=True))

    def of(key: str) -> Array:
        return known[key] if key in known else np.broadcast_to(np.uint8(0), rows[key])

    return of


def _epochs_of(plan: JobPlan, batch_rows: int) -> tuple[_Epoch, ...]:
    """The natural epochs that have events, in order."""
    found = []
    begin = plan.units.first_unit
    for stop in plan.stops:
        done = [one.epoch.number + 1 for one in plan.epochs if one.stop_unit <= begin]
        first, end = plan.units.due_before(begin), plan.units.due_before(stop)
        if first < end:
            found.append(_Epoch(BatchParts(batch_rows, 0, 1, first, end), max(done, default=0)))
        begin = stop
    return tuple(found)
