"""The joined columns of one event, whose windows are looked at together.

The aggregates are those of tables of events (:mod:`transforms.joins.aggregates`): each distinct window is an event of its own, with the same key and time, so that
columns which differ in their window alone are one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.columns.nans import with_one_nan
from transforms.joins.aggregates import aggregated, sharing_order
from transforms.joins.column_names import Aggregate
from transforms.joins.definition import OF_LAST_ROWS, JoinDefinition
from transforms.joins.histories import Events, Histories, History, Rows, Sorted, Window
from transforms.joins.parts import Parts
from transforms.joins.visibility import known_before, seen_at, seen_range
from transforms.online.row_block import RowBlock

#: So many windows cost these aggregates less than histories of their own.
_FEW_WINDOWS = 2
#: Aggregates for which more windows cost more than histories of their own do.
_ALONE = OF_LAST_ROWS | {Aggregate.DISTINCT}


class _Call(NamedTuple):
    """Columns that one call answers: the definition of the first one, and of each column its window."""

    definition: JoinDefinition
    parts: Parts
    columns: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class _Round:
    """Calls over the same windows: definitions of which only the window counts."""

    windows: tuple[JoinDefinition, ...]
    calls: tuple[_Call, ...]


class OneEvent:
    """Joined columns whose rows have one key, and whose events have one, for one event at a time."""

    def __init__(self, columns: Sequence[tuple[str, JoinDefinition, Parts]]) -> None:
        together = [one for one in columns if one[1].aggregate not in _ALONE]
        windows = {_window(definition) for _, definition, _ in together}
        is_few = len(windows) <= _FEW_WINDOWS
        together += [one for one in columns if one[1].aggregate in _ALONE and is_few and _window(one[1]) in windows]
        others = [one for one in columns if not any(one is each for each in together)]
        self._rounds = tuple(_round(each) for each in ([together] if together else []) + [[one] for one in others])

    def answer(self, rows: RowBlock, at: Array) -> dict[str, object]:
        """The value of each column at one time; ``rows``: those of the event's key, in order of time."""
        found: dict[str, object] = {}
        for one in self._rounds:
            made = _Windows(one.windows, rows.rows, at)
            for definition, parts, columns in one.calls:
                values = with_one_nan(aggregated(definition, parts, made))
                for name, place in columns:
                    found[name] = values[place].as_py()
        return found


def _round(columns: Sequence[tuple[str, JoinDefinition, Parts]]) -> _Round:
    windows: dict[tuple[object, ...], tuple[int, JoinDefinition]] = {}
    calls: dict[tuple[object, ...], tuple[JoinDefinition, Parts, list[tuple[str, int]]]] = {}
    for name, definition, parts in sorted(columns, key=lambda one: sharing_order(*one[1:])):
        place, _ = windows.setdefault(_window(definition), (len(windows), definition))
        same = replace(definition, window_micros=None, hop_micros=0, available_after_micros=0, includes_equal=False)
        calls.setdefault((same.digest,), (definition, parts, []))[2].append((name, place))
    return _Round(tuple(one for _, one in windows.values()), tuple(_Call(one, parts, tuple(each)) for one, parts, each in calls.values()))  # fmt: skip


def _window(definition: JoinDefinition) -> tuple[object, ...]:
    return (
        definition.window_micros,
        definition.hop_micros,
        definition.available_after_micros,
        definition.includes_equal,
        definition.as_of,
    )


class _Windows(Histories):
    """Histories of rows of one key, in order of time, and of an event for each window."""

    def __init__(self, windows: Sequence[JoinDefinition], rows: Rows, at: Array) -> None:
        super().__init__(Events(np.repeat(at, len(windows)), {}), rows, 1)
        self._by_name: dict[tuple[str, str], _WindowedHistory] = {}
        moment = int(at[0])
        ranges = [seen_range(one, moment, moment) for one in windows]
        before = [known_before(one, seen_at(one, at))[0] for one in windows]
        self._bounds = (
            np.array([first for first, _ in ranges]),
            np.array([last for _, last in ranges]),
            np.array(before),
        )
        self._own = Sorted(np.arange(len(windows)), np.array([0, len(windows)]), self.events.time)
        self._all = Sorted(np.arange(len(rows.time)), np.array([0, len(rows.time)]), rows.time)

    def are_in_time(self, parts: Parts) -> bool:
        """False: the shorter way for rows in the order of their times takes the window of one definition."""
        return False

    def of(self, definition: JoinDefinition, parts: Parts) -> History:
        """The history of a definition."""
        where = "" if parts.where is None else parts.where.identity
        found = self._by_name.get((where, definition.known_at))
        if found is None:
            known = self.rows.known[definition.known_at] if definition.known_at else None
            found = _WindowedHistory(
                self._filtered(self._all, where, known), self._own, known, self.rows.columns, self._bounds
            )
            self._by_name[where, definition.known_at] = found
        return found


class _WindowedHistory(History):
    def __init__(
        self,
        rows: Sorted,
        events: Sorted,
        known: Array | None,
        columns: Mapping[str, pa.Array],
        bounds: tuple[Array, Array, Array],
    ) -> None:
        super().__init__(rows, events, known, columns)
        first, last, before = bounds
        self._window = Window(np.searchsorted(rows.time, first), np.searchsorted(rows.time, last, "right"), before)

    def window(self, definition: JoinDefinition) -> Window:
        """The rows that the event sees in each window."""
        return self._window
