"""Work units: ranges of rows of fragments, numbered in training order. Pure.

A plan is arrays over *stretches*, contiguous rows of one fragment; units are cut from them by arithmetic, so a plan of a million units
takes a few megabytes.

The order of units does not depend on the number of readers or hosts. Unit u belongs to the host of rank u modulo the hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from transforms.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A unit of work for a reader and a host.

    Attributes:
        number: its place in the training order.
        fragment: the key of its fragment.
        first_row, rows: its stored events.
        pass_number: the pass, from 0.
    """

    number: int
    fragment: str
    first_row: int
    rows: int
    pass_number: int


@dataclass(frozen=True, eq=False)
class UnitPlan:
    """The units ``[first_unit, stop_unit)`` of a job.

    Attributes:
        unit_rows: the largest unit; stretches are cut evenly.
        keys: of each fragment, its key.
        partitions: of each fragment, the number of its partition, int32.
        end_secs: of each fragment, the end of its partition, float64.
        fragment: of each stretch, the number of its fragment, int32.
        first_row, rows: of each stretch, its rows, int32.
        pass_number: of each stretch, its pass, uint8.
        first_unit: the number of the first unit.
    """

    unit_rows: int
    keys: tuple[str, ...]
    partitions: Array
    end_secs: Array
    fragment: Array
    first_row: Array
    rows: Array
    pass_number: Array
    first_unit: int = 0

    @cached_property
    def unit_starts(self) -> Array:
        """The number of the first unit of each stretch, and the end of the last; int64 [stretches + 1]."""
        return _cumulated(-(-self.rows.astype(np.int64) // self.unit_rows), self.first_unit)

    @cached_property
    def row_starts(self) -> Array:
        """The number of rows before each stretch, and of all; int64 [stretches + 1]."""
        return _cumulated(self.rows.astype(np.int64), 0)

    @property
    def stop_unit(self) -> int:
        """The number after the last unit."""
        return int(self.unit_starts[-1])

    def unit(self, number: int) -> WorkUnit:
        """Unit ``number``. Raises :class:`InputError` for a number outside the plan."""
        if not self.first_unit <= number < self.stop_unit:
            raise InputError("number of a unit must be in its plan", value=number,
                             allowed=f"[{self.first_unit}, {self.stop_unit})")  # fmt: skip
        at = int(np.searchsorted(self.unit_starts, number, side="right")) - 1
        first, stop = (
            self._cut(at, number - int(self.unit_starts[at])),
            self._cut(at, number + 1 - int(self.unit_starts[at])),
        )
        return WorkUnit(
            number=number,
            fragment=self.keys[self.fragment[at]],
            first_row=first,
            rows=stop - first,
            pass_number=int(self.pass_number[at]),
        )

    def _cut(self, stretch: int, units: int) -> int:
        """The first row after ``units`` units of a stretch."""
        count = int(self.unit_starts[stretch + 1] - self.unit_starts[stretch])
        return int(self.first_row[stretch]) + units * int(self.rows[stretch]) // count

    def rows_before(self, number: int) -> int:
        """The rows of all units of the plan before unit ``number``."""
        if number >= self.stop_unit:
            return int(self.row_starts[-1])
        at = int(np.searchsorted(self.unit_starts, number, side="right")) - 1
        return int(self.row_starts[at]) + self._cut(at, number - int(self.unit_starts[at])) - int(self.first_row[at])

    def ends_by_rows(self, rows: int, stops: Sequence[int]) -> tuple[int, ...]:
        """Ends of epochs of about ``rows`` rows between the given ``stops``, and these stops; ascending.

        An end is the first one of a unit with at least so many rows since the last end. Raises :class:`InputError`.
        """
        if rows < 1:
            raise InputError("rows of an epoch must be at least 1", value=rows)
        before = self._rows_before_units
        found: list[int] = []
        at = self.first_unit
        for stop in stops:
            while at < stop:
                wanted = int(before[at - self.first_unit]) + rows
                at = min(stop, self.first_unit + int(np.searchsorted(before, wanted, side="left")))
                found.append(at)
        return tuple(found)

    @cached_property
    def _rows_before_units(self) -> Array:
        """The rows before each unit, and of all; int64 [units + 1]."""
        counts = np.diff(self.unit_starts)
        stretch = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(self.first_unit, self.stop_unit) - self.unit_starts[stretch]
        before = self.row_starts[stretch] + number * self.rows[stretch].astype(np.int64) // counts[stretch]
        return np.append(before, self.row_starts[-1])

    def newest_secs(self, number: int) -> float:
        """The latest end of a partition among the units before ``number``; 0 if unknown."""
        at = int(np.searchsorted(self.unit_starts, number, side="left"))
        return float(self.end_secs[self.fragment[:at]].max(initial=0.0))


def _cumulated(counts: Array, start: int) -> Array:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    starts += start
    return starts


def units_of(rank: int, hosts: int, first_unit: int, stop_unit: int) -> range:
    """The units of ``[first_unit, stop_unit)`` that the host of ``rank`` trains."""
    return range(first_unit + (rank - first_unit) % hosts, stop_unit, hosts)
