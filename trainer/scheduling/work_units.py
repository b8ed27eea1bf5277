"""Work units: numbered ranges of the stream of events, of which every host trains an equal part. Pure.

The stream is all events of a plan in training order. A plan is arrays over *stretches*, contiguous rows of one fragment; its units are
cut by arithmetic within *sections*, so a plan of a million units takes a few megabytes. An event has two coordinates: its *place* among
all stored rows of the stream, and the number of due events before it, by which units and shares are cut.

Units do not depend on the number of readers or hosts. Where all hosts share each batch, a host trains its parts of the batches of a unit
(:mod:`trainer.scheduling.batch_parts`). Where each host has batches of its own, the host of rank r trains the r-th contiguous share of
each unit. Over any range of units the shares of all hosts differ by one due event at most, so all hosts need the same number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from transforms.arrays import Array
from transforms.errors import InputError

#: Places ``[first, stop)`` of a stream.
PlaceRange = tuple[int, int]
#: An epoch is cut into about so many units at least, if each then has a batch for every host.
_LEAST_UNITS = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one fragment that a host requests at once.

    Attributes:
        unit: the number of its work unit, or one below the first unit of an attempt for carried rows.
        place: of its first row in the stream.
        fragment: the key of its fragment.
        first_row, rows: its stored events.
    """

    unit: int
    place: int
    fragment: str
    first_row: int
    rows: int

    @property
    def stop(self) -> int:
        """The place after its last row."""
        return self.place + self.rows

    @property
    def origin(self) -> int:
        """The place that row 0 of the fragment would have; the same for all pieces of a fragment in a pass."""
        return self.place - self.first_row


@dataclass(frozen=True, eq=False)
class UnitPlan:
    """The units ``[first_unit, stop_unit)`` of a job.

    Attributes:
        most_rows: the largest number of rows of a piece.
        keys: of each fragment, its key.
        partitions: of each fragment, the number of its partition, int32.
        end_secs: of each fragment, the end of its partition, float64.
        fragment: of each stretch, the number of its fragment, int32.
        first_row, rows: of each stretch, its rows, int32.
        due: of each stretch, its due events, from 1 to ``rows``, which are taken as evenly spread over it, int32.
        pass_number: of each stretch, its pass, uint8.
        section_units: of each section, the number of its first unit; and the number after the last unit; int64 [sections + 1].
        section_due: of each section, the due events before it; and all of them; int64 [sections + 1].
    """

    most_rows: int
    keys: tuple[str, ...]
    partitions: Array
    end_secs: Array
    fragment: Array
    first_row: Array
    rows: Array
    due: Array
    pass_number: Array
    section_units: Array
    section_due: Array

    @property
    def first_unit(self) -> int:
        """The number of the first unit."""
        return int(self.section_units[0])

    @property
    def stop_unit(self) -> int:
        """The number after the last unit."""
        return int(self.section_units[-1])

    @cached_property
    def row_starts(self) -> Array:
        """The place of each stretch, and the number of all rows; int64 [stretches + 1]."""
        return cumulated(self.rows)

    @cached_property
    def due_starts(self) -> Array:
        """The due events before each stretch, and all of them; int64 [stretches + 1]."""
        return cumulated(self.due)

    @cached_property
    def _runs(self) -> Array:
        """The places between which stretches are contiguous rows of one fragment in one pass; int64, ascending."""
        follows = (
            (np.diff(self.fragment) == 0)
            & (np.diff(self.pass_number.astype(np.int16)) == 0)
            & (self.first_row[:-1].astype(np.int64) + self.rows[:-1] == self.first_row[1:])
        )
        return self.row_starts[np.concatenate([[True], ~follows, [True]])] if len(self.rows) else self.row_starts

    def stretch_of(self, place: int) -> int:
        """The stretch that holds the row at ``place``."""
        return int(np.searchsorted(self.row_starts, place, side="right")) - 1

    def due_before(self, number: int) -> int:
        """The due events of all units of the plan before unit ``number``; none before its first unit."""
        if number <= self.first_unit:
            return 0
        if number >= self.stop_unit:
            return int(self.section_due[-1])
        at = int(np.searchsorted(self.section_units, number, side="right")) - 1
        (first_unit, stop_unit), (first, stop) = self.section_units[at : at + 2], self.section_due[at : at + 2]
        return int(first + (number - first_unit) * (stop - first) // (stop_unit - first_unit))

    def unit_of(self, due: int) -> int:
        """The unit of a due event, by the number of those before it, which must be fewer than all."""
        at = int(np.searchsorted(self.section_due, due, side="right")) - 1
        (first_unit, stop_unit), (first, stop) = self.section_units[at : at + 2], self.section_due[at : at + 2]
        # Unit k of n ends before event (k + 1) * events // n.
        return int(first_unit + ((due - first + 1) * (stop_unit - first_unit) - 1) // (stop - first))

    def place_of(self, due: int) -> int:
        """The place up to which the stream holds ``due`` due events."""
        if due >= int(self.due_starts[-1]):
            return int(self.row_starts[-1])
        at = int(np.searchsorted(self.due_starts, due, side="right")) - 1
        inside = (due - int(self.due_starts[at])) * int(self.rows[at]) // int(self.due[at])
        return int(self.row_starts[at]) + inside

    def share(self, number: int, rank: int, hosts: int) -> PlaceRange:
        """The places of unit ``number`` that the host of ``rank`` trains; possibly none.

        Raises :class:`InputError` for a unit outside the plan.
        """
        if not self.first_unit <= number < self.stop_unit:
            raise InputError(
                "number of a unit must be in its plan", value=number, allowed=f"[{self.first_unit}, {self.stop_unit})"
            )
        first, stop = self.due_before(number), self.due_before(number + 1)
        # Host r has as many due events as numbers of [first, stop) leave the rest r when they are divided by the hosts.
        ends = [first + sum(_leaving(first, stop, r, hosts) for r in range(end)) for end in (rank, rank + 1)]
        return self.place_of(ends[0]), self.place_of(ends[1])

    def pieces(self, unit: int, places: PlaceRange, most_rows: int = 0) -> Iterator[Piece]:
        """The rows at ``places`` in order, cut at fragments and into at most ``most_rows``; ``unit`` is that of the pieces.

        ``most_rows``: of a piece; 0: that of the plan.
        """
        first, stop = places
        most_rows = most_rows or self.most_rows
        inner = self._runs[np.searchsorted(self._runs, first, side="right") : np.searchsorted(self._runs, stop)]
        ends = [first, *inner.tolist(), stop]
        for begin, end in pairwise(ends):
            count = -(-(end - begin) // most_rows)
            for k in range(count):
                place, after = (begin + n * (end - begin) // count for n in (k, k + 1))
                at = self.stretch_of(place)
                row = int(self.first_row[at]) + place - int(self.row_starts[at])
                yield Piece(unit, place, self.keys[self.fragment[at]], row, after - place)

    def ends_by_rows(self, rows: int, stops: Sequence[int]) -> tuple[int, ...]:
        """Ends of epochs of about ``rows`` due events between the given ``stops``, and these stops; ascending.

        An end is the first one of a unit with at least so many events since the last end. Raises :class:`InputError`.
        """
        if rows < 1:
            raise InputError("rows of an epoch must be at least 1", value=rows)
        before = self._due_before_units
        found: list[int] = []
        at = self.first_unit
        for stop in stops:
            while at < stop:
                wanted = int(before[at - self.first_unit]) + rows
                at = min(stop, self.first_unit + int(np.searchsorted(before, wanted, side="left")))
                found.append(at)
        return tuple(found)

    @cached_property
    def _due_before_units(self) -> Array:
        """The due events before each unit, and all of them; int64 [units + 1]."""
        counts = np.diff(self.section_units)
        section = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(self.first_unit, self.stop_unit) - self.section_units[section]
        before = self.section_due[section] + number * np.diff(self.section_due)[section] // counts[section]
        return np.append(before, self.section_due[-1])

    def newest_secs(self, number: int) -> float:
        """The latest end of a partition among the units before ``number``; 0 if unknown."""
        at = int(np.searchsorted(self.due_starts, self.due_before(number), side="left"))
        return float(self.end_secs[self.fragment[:at]].max(initial=0.0))


def cumulated(counts: Array, start: int = 0) -> Array:
    """``start``, and the sum of it and the counts up to each one; int64 [counts + 1]."""
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    starts += start
    return starts


def _leaving(first: int, stop: int, rest: int, divisor: int) -> int:
    """How many numbers of ``[first, stop)`` leave ``rest`` when they are divided by ``divisor``."""
    return (stop - rest + divisor - 1) // divisor - (first - rest + divisor - 1) // divisor


def units_of_epoch(events: int, *, hosts: int, batch_rows: int, most_rows: int) -> int:
    """The number of units into which an epoch of ``events`` due events is cut; 0 without events.

    A host's share of a unit is at most ``most_rows`` and, where that allows it, whole batches. An epoch has several units, if each has a
    batch for every host: hosts then train events of about the same time, and the epoch can end early before its last unit is begun.

    Args:
        hosts: the largest number of hosts that is expected; any number trains equal shares.
    """
    share = -(-events // (hosts * _LEAST_UNITS))
    share = -(-share // batch_rows) * batch_rows
    return -(-events // (hosts * max(1, min(share, most_rows))))


def share_ranges(ranges: Iterable[PlaceRange], rank: int, hosts: int) -> tuple[PlaceRange, ...]:
    """The part of some ranges of places that the host of ``rank`` takes over: an equal number of their rows, contiguous."""
    ordered = sorted(ranges)
    total = sum(stop - first for first, stop in ordered)
    begin, end = rank * total // hosts, (rank + 1) * total // hosts
    found: list[PlaceRange] = []
    at = 0
    for first, stop in ordered:
        own = (max(first, first + begin - at), min(stop, first + end - at))
        if own[0] < own[1]:
            found.append(own)
        at += stop - first
    return tuple(found)
