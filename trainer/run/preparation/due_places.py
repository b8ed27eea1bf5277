"""Where each due event of a plan is: its exact place in the stream, by the number of due events before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from trainer.errors import TornCheckpoint
from trainer.run.preparation.job_plan import JobPlan
from transforms.arrays import Array

#: Fragments whose due rows are kept: hosts go through the stream in order.
_KEPT_FRAGMENTS = 16


class DuePlaces:
    """The places of the due events of a plan; any thread may ask.

    ``counts``: of a fragment by its key, how often each stored event was trained before the plan.
    """

    def __init__(self, plan: JobPlan, counts: Callable[[str], Array]) -> None:
        self._plan, self._counts = plan, counts
        self._due_rows = lru_cache(_KEPT_FRAGMENTS)(self._find_due_rows)

    def of(self, numbers: Array) -> Array:
        """The place of each event, int64, from the number of due events before it, int64, ascending."""
        units = self._plan.units
        places = np.empty(len(numbers), np.int64)
        stretches = np.searchsorted(units.due_starts, numbers, side="right") - 1
        cuts = np.flatnonzero(np.diff(stretches)) + 1
        for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(numbers)], strict=True):
            if begin == end:
                continue
            at = int(stretches[begin])
            inside = numbers[begin:end] - units.due_starts[at]
            if units.due[at] != units.rows[at]:
                inside = self._rows_of(at)[inside]
            places[begin:end] = units.row_starts[at] + inside
        return places

    def one(self, number: int) -> int:
        """The place of one event."""
        return int(self.of(np.array([number], np.int64))[0])

    def _rows_of(self, stretch: int) -> Array:
        """The due rows of a stretch, counted from its first row."""
        units = self._plan.units
        fragment, first, rows = (int(column[stretch]) for column in (units.fragment, units.first_row, units.rows))
        due = self._due_rows(fragment, int(self._plan.due_below[stretch]))
        begin, end = np.searchsorted(due, [first, first + rows])
        if end - begin != units.due[stretch]:
            raise TornCheckpoint("a stretch of a plan must have the due events that its bits and counts say", where=f"fragment {units.keys[fragment]}",
                                 value=int(units.due[stretch]), allowed=f"{end - begin}")  # fmt: skip
        return np.asarray(due[begin:end] - first)

    def _find_due_rows(self, fragment: int, below: int) -> Array:
        plan = self._plan
        mask: Array = self._counts(plan.units.keys[fragment]) < below
        bits = plan.trainable.get(fragment)
        if bits is not None:
            mask = mask & np.unpackbits(bits, count=len(mask)).view(bool)
        return np.flatnonzero(mask)
