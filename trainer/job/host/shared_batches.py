"""What a host asks of readers and trains where all hosts share each batch: its parts of the batches of a natural epoch.

Batches follow from the stream alone, so the position of a job in an epoch is a number of batches; any number of hosts goes on from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trainer.run.preparation.due_places import DuePlaces
from trainer.run.preparation.job_plan import JobPlan
from trainer.run.reading.shuffling import ShuffleWindow
from trainer.run.reading.unit_requests import MOST_CHOSEN_RANGE, UnitRequest, bits_of
from trainer.scheduling.batch_parts import BatchParts
from trainer.scheduling.work_units import Piece, PlaceRange
from transforms.arrays import Array

_KEPT_WINDOWS = 4
#: The rows of a window after the last one, which is never whole.
_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class AskedPiece:
    """Rows of a fragment that a host asks for, and how many due events they must have; None if that is not known."""

    piece: Piece
    request: UnitRequest
    events: int | None = None


@dataclass(frozen=True, slots=True)
class _Dealt:
    """A host's events of a shuffled window, as numbers of due events, ascending; and the batch of the window that each is in."""

    events: Array
    batches: Array


@dataclass(frozen=True, slots=True)
class EpochContent:
    """What a host's parts of the batches of an epoch follow from.

    Attributes:
        places: the fragments of the epoch in order, each with a place of it in the stream.
        cut: a JSON value of which of their events are in which part.
    """

    places: dict[str, int]
    cut: object


class SharedBatches:
    """One host's parts of the batches of a natural epoch of a plan.

    Args:
        window: the first window of shuffled events; None: events are not shuffled.
    """

    def __init__(self, plan: JobPlan, places: DuePlaces, parts: BatchParts, window: ShuffleWindow | None) -> None:
        self._plan, self._places, self._parts, self._first_window = plan, places, parts, window
        self._dealt = lru_cache(_KEPT_WINDOWS)(self._deal)

    def content(self) -> EpochContent | None:
        """What the host's parts follow from; None without events. Equal for each pass over the same events, unless they are shuffled."""
        parts, window = self._parts, self._first_window
        if parts.first >= parts.stop:
            return None
        events = self._places.of(np.arange(parts.first, parts.stop))
        begin = int(events[0])
        pieces = list(self._plan.units.pieces(self._plan.units.first_unit, (begin, int(events[-1]) + 1)))
        numbers = {key: number for number, key in enumerate(dict.fromkeys(one.fragment for one in pieces))}
        rows = [[numbers[one.fragment], one.first_row, one.rows, one.place - begin] for one in pieces]
        digest = hashlib.sha256((events - begin).tobytes()).hexdigest()
        order = None if window is None else [window.rows, window.seed, window.start, window.number, begin]
        cut = [parts.batch_rows, parts.rank, parts.hosts, rows, digest, order]
        places = dict.fromkeys(numbers, 0) | {one.fragment: one.place for one in pieces}
        return EpochContent(places, cut)

    def is_over(self, batch: int) -> bool:
        """Whether the epoch has fewer batches."""
        return batch >= self._parts.batches

    def rows(self, batch: int) -> int:
        """The host's events of a batch."""
        first, stop = self._parts.part(batch)
        return stop - first

    def last_unit(self, batch: int) -> int:
        """The last unit that all hosts together begin for a batch, or for its window."""
        stop = self._parts.batch(batch)[1]
        if (window := self._first_window) is not None:
            into = stop - 1 - self._parts.first
            stop = min(self._parts.first + (into // window.rows + 1) * window.rows, self._parts.stop)
        return self._plan.units.unit_of(stop - 1)

    def rest(self, batch: int, stop_unit: int) -> tuple[PlaceRange, ...]:
        """The places of the units before ``stop_unit`` from a batch on."""
        first = self._parts.first + batch * self._parts.batch_rows
        stop = min(self._plan.units.due_before(stop_unit), self._parts.stop)
        return ((self._places.one(first), self._places.one(stop - 1) + 1),) if first < stop else ()

    def asked(self, attempt: int, batch: int, first_unit: int, stop_unit: int) -> Iterator[AskedPiece]:
        """What the host asks for, in order, from a batch on; pieces of units before ``first_unit`` count as those of the one before it."""
        units, parts = self._plan.units, self._parts
        begin = parts.first + self._window_begin(batch)
        stop = min(parts.stop, units.due_before(stop_unit))
        while begin < stop:
            unit = units.unit_of(begin)
            end = min(stop, units.due_before(unit + 1))
            yield from self._of_unit(attempt, max(unit, first_unit - 1), begin, end)
            begin = end

    def _of_unit(self, attempt: int, unit: int, begin: int, end: int) -> Iterator[AskedPiece]:
        own = self._own(begin, end)
        if not len(own):
            return
        places = self._places.of(own)
        most_rows = min(self._plan.units.most_rows, MOST_CHOSEN_RANGE)
        around = self._places.one(begin), self._places.one(end - 1) + 1
        for piece in self._plan.units.pieces(unit, around, most_rows):
            found = places[np.searchsorted(places, piece.place) : np.searchsorted(places, piece.stop)]
            if not len(found):
                continue
            first, rows = int(found[0]), int(found[-1] - found[0]) + 1
            cut = replace(piece, place=first, first_row=first - piece.origin, rows=rows)
            bits = b""
            if self._parts.hosts > 1:
                chosen = np.zeros(rows, bool)
                chosen[found - first] = True
                bits = bits_of(chosen)
            yield AskedPiece(cut, self._plan.request(cut, attempt, bits), len(found))

    def _own(self, begin: int, end: int) -> Array:
        """The host's due events of a range, ascending."""
        if self._first_window is None:
            return self._parts.own(begin, end)
        rows, first = self._first_window.rows, self._parts.first
        numbers = range((begin - first) // rows, (end - 1 - first) // rows + 1)
        own = np.concatenate([self._dealt(number).events for number in numbers])
        return np.asarray(own[np.searchsorted(own, begin) : np.searchsorted(own, end)])

    def _window_begin(self, batch: int) -> int:
        """The first event that is asked for to go on from a batch, counted in the epoch."""
        into = batch * self._parts.batch_rows
        return into if self._first_window is None else into // self._first_window.rows * self._first_window.rows

    def window(self, batch: int) -> DealtWindow | None:
        """The window of a batch for :class:`~trainer.run.reading.batches.BatchAssembler`; None: events are not shuffled."""
        if self._first_window is None:
            return None
        into = batch * self._parts.batch_rows
        number, drawn = divmod(into, self._first_window.rows)
        dealt = self._dealt(number)
        return DealtWindow(self, number, int((dealt.batches < drawn // self._parts.batch_rows).sum())).with_events()

    def dealt(self, number: int) -> Array | None:
        """The batch in a window of each of the host's events there, in the order of the stream; None after the last window."""
        assert self._first_window is not None
        is_over = self._parts.first + number * self._first_window.rows >= self._parts.stop
        return None if is_over else self._dealt(number).batches

    def _deal(self, number: int) -> _Dealt:
        """Draw the batches of a window from all of its events; keep the host's parts."""
        assert self._first_window is not None
        parts, rows = self._parts, self._first_window.rows
        first = parts.first + number * rows
        stop = min(first + rows, parts.stop)
        if first >= stop:
            return _Dealt(np.zeros(0, np.int64), np.zeros(0, np.int64))
        window = replace(self._first_window, number=self._first_window.number + number, drawn=0)
        order = window.order(self._places.of(np.arange(first, stop)))
        events, batches = [], []
        for k, begin in enumerate(range(0, stop - first, parts.batch_rows)):
            chosen = np.sort(order[begin : begin + parts.batch_rows])
            low, high = (rank * len(chosen) // parts.hosts for rank in (parts.rank, parts.rank + 1))
            events.append(chosen[low:high] + first)
            batches.append(np.full(high - low, k))
        own, of = np.concatenate(events), np.concatenate(batches)
        ascending = np.argsort(own, kind="stable")
        return _Dealt(own[ascending], of[ascending])


@dataclass(frozen=True, slots=True)
class DealtWindow:
    """A host's events of a window whose batches are dealt: a :class:`~trainer.run.reading.shuffling.Window`."""

    shared: SharedBatches
    number: int
    drawn: int = 0

    @property
    def rows(self) -> int:
        """See :class:`~trainer.run.reading.shuffling.Window`."""
        batches = self.shared.dealt(self.number)
        return _ENDLESS if batches is None else len(batches)

    def order(self, places: Array) -> Array:
        """The events batch after batch, each batch in the order of the stream."""
        batches = self.shared.dealt(self.number)
        assert batches is not None, "a window that is whole has events"
        assert len(batches) == len(places), "a window is whole"
        return np.argsort(batches, kind="stable")

    def cuts(self, rows: int, batch_rows: int) -> Array:
        """See :meth:`~trainer.run.reading.shuffling.Window.cuts`: the host's parts of batches, without those that have no events."""
        batches = self.shared.dealt(self.number)
        assert batches is not None, "a window that is whole has events"
        return np.unique(np.append(0, np.cumsum(np.bincount(batches))))

    def following(self) -> DealtWindow:
        """The next window that has events of the host, or the end."""
        return DealtWindow(self.shared, self.number + 1).with_events()

    def with_events(self) -> DealtWindow:
        """This window, or the first one after it that has events of the host which are not drawn."""
        found = self
        while found.rows == found.drawn:
            found = DealtWindow(self.shared, found.number + 1)
        return found
