"""What columns that are joined from one table have in common: keys, order, tries and windows, each made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.graphs.graph import Node
from transforms.joins.definition import DayClock, JoinDefinition
from transforms.joins.keys import KeyNumbers, number_keys
from transforms.joins.parts import Parts
from transforms.joins.ranks import ranks
from transforms.joins.visibility import NO_TIME, known_before, seen_at, window_end
from transforms.kernels.histories import Trie, trie_of
from transforms.kernels.history_order import equal_rows, is_ascending, order_by_key, rows_before
from transforms.kernels.history_states import Values

_T = TypeVar("_T")
#: The fewest events for which another thread pays.
_EVENTS_OF_A_THREAD = 1 << 14


class Events(NamedTuple):
    """The events: times in microseconds, and their computed columns by identity."""

    time: Array
    columns: Mapping[str, pa.Array]


class Rows(NamedTuple):
    """The rows of the other table, as :class:`Events`; ``known``: columns of times at which they are known."""

    time: Array
    columns: Mapping[str, pa.Array]
    known: Mapping[str, Array]


class Sorted(NamedTuple):
    """Events or rows by key, then time.

    Attributes:
        order: their positions.
        starts: the first one of each key, and the end.
        time: of each one.
    """

    order: Array
    starts: Array
    time: Array


class Window(NamedTuple):
    """The range of rows of each event, in the order of events.

    Attributes:
        first: its first row.
        end: the row after its last one; a range that ends before it begins is empty.
        before: the time before which rows must be known, if rows are known at other times than theirs.
    """

    first: Array
    end: Array
    before: Array


class History:
    """The rows that definitions of one key, filter and column of known times use.

    Attributes:
        rows: by key, then time.
        events: by key, then time, those with a key and a time.
        known: when each row of the table is known; None: at its time.
    """

    def __init__(self, rows: Sorted, events: Sorted, known: Array | None, columns: Mapping[str, pa.Array]) -> None:
        self.rows, self.events, self.known, self._columns = rows, events, known, columns
        self._orders: dict[tuple[str, ...], Array] = {}
        self._bounds: dict[tuple[object, ...], Array] = {}
        self._seen_at: dict[DayClock | None, Array] = {}

    @cached_property
    def trie(self) -> Trie:
        """The trie of the rows; ``known`` is in the order of :attr:`rows`."""
        return trie_of(self.rows.starts, self.rows.time, None if self.known is None else self.known[self.rows.order])

    @cached_property
    def root(self) -> Array:
        """The root of the key of each event."""
        return np.repeat(self.trie.roots, np.diff(self.events.starts))

    def order(self, *ties: Node | None) -> Array:
        """The positions of rows in their order, those of one key and time by the values of ``ties``."""
        names = tuple(one.identity for one in ties if one is not None)
        if names not in self._orders:
            self._orders[names] = self._untied(names)
        return self._orders[names]

    def trie_in(self, order: Array) -> Trie:
        """The trie for rows in another order of equal times."""
        return self.trie if self.known is None else self.trie._replace(known=self.known[order])

    def window(self, definition: JoinDefinition) -> Window:
        """The rows that events see, if they are known."""
        at = self.seen_at(definition)
        is_open = definition.window_micros is None
        first = (
            self._first_of_keys
            if is_open
            else self._rows_before(definition, -(definition.window_micros or 0), definition.hop_micros)
        )
        end = self._rows_before(definition, window_end(definition), 0)
        return Window(first, end, at if self.known is None else known_before(definition, at))

    def seen_at(self, definition: JoinDefinition) -> Array:
        """The times as of which events see rows, in the order of events."""
        if definition.as_of not in self._seen_at:
            self._seen_at[definition.as_of] = seen_at(definition, self.events.time)
        return self._seen_at[definition.as_of]

    @cached_property
    def _first_of_keys(self) -> Array:
        return np.repeat(self.rows.starts[:-1], np.diff(self.events.starts))

    def _rows_before(self, definition: JoinDefinition, shift: int, hop: int) -> Array:
        name = (definition.as_of, shift, hop)
        if name not in self._bounds:
            at = self.seen_at(definition)
            self._bounds[name] = rows_before(self.rows.starts, self.rows.time, self.events.starts, at, shift, hop)
        return self._bounds[name]

    @cached_property
    def _equal(self) -> tuple[Array, Array]:
        return equal_rows(self.rows.starts, self.rows.time)

    def _untied(self, names: tuple[str, ...]) -> Array:
        places, groups = self._equal
        if not len(places) or not names:
            return self.rows.order
        rows = self.rows.order[places]
        tied = [ranks(self._columns[name].take(pa.array(rows))) for name in names]
        order = self.rows.order.copy()
        order[places] = rows[np.lexsort((*reversed(tied), groups))]
        return order


class Latest(Generic[_T]):
    """The value of one name: of the last one that was asked for."""

    def __init__(self) -> None:
        self._held: tuple[object, _T] | None = None

    def of(self, name: object, make: Callable[[], _T]) -> _T:
        """The value of a name, made unless it is the last one."""
        if self._held is None or self._held[0] != name:
            self._held = None  # its memory is free before the next one is made
            self._held = name, make()
        return self._held[1]


class Histories:
    """The histories of one table, as definitions need them.

    Attributes:
        events: the events.
        rows: the rows of the other table.
        nodes: of the last history, value and half-life that were asked for, the trie, the values and the states of nodes.
        climbs: of the last history, value and end of windows, how far the ends of ranges have climbed.
        states: of the last history, value and window, the states of events.
    """

    def __init__(self, events: Events, rows: Rows, threads: int) -> None:
        self.events, self.rows, self._threads = events, rows, threads
        self._keys: dict[tuple[str, ...], KeyNumbers] = {}
        self._sorted: dict[tuple[str, ...], tuple[Sorted, Sorted]] = {}
        self._made: dict[tuple[object, ...], History] = {}
        self.nodes: Latest[tuple[Trie, Values, Array]] = Latest()
        self.climbs: Latest[Array] = Latest()
        self.states: Latest[Array] = Latest()

    def of(self, definition: JoinDefinition, parts: Parts) -> History:
        """The history of a definition."""
        where = "" if parts.where is None else parts.where.identity
        name = (parts.own, parts.other, where, definition.known_at)
        if name not in self._made:
            rows, events = self._sides(parts)
            known = self.rows.known[definition.known_at] if definition.known_at else None
            self._made[name] = History(self._filtered(rows, where, known), events, known, self.rows.columns)
        return self._made[name]

    def in_parts(self, work: Callable[[int, int], None], events: int) -> None:
        """Call ``work`` with the first event and the end of each part, in threads."""
        parts = max(min(self._threads, events // _EVENTS_OF_A_THREAD), 1)
        ends = [events * part // parts for part in range(parts + 1)]
        self._together([lambda k=k: work(ends[k], ends[k + 1]) for k in range(parts)])  # type: ignore[misc]

    def _together(self, work: list[Callable[[], _T]]) -> list[_T]:
        if min(self._threads, len(work)) < 2:
            return [one() for one in work]
        with ThreadPoolExecutor(self._threads) as pool:
            return [one.result() for one in [pool.submit(each) for each in work]]

    def keys(self, parts: Parts) -> KeyNumbers:
        """The keys of rows and events as numbers."""
        name = _key_names(parts)
        if name not in self._keys:
            self._keys[name] = number_keys([self.rows.columns[one.identity] for one in parts.other], [self.events.columns[one.identity] for one in parts.own])  # fmt: skip
        return self._keys[name]

    def are_in_time(self, parts: Parts) -> bool:
        """Whether rows and events come in the order of their times, all have one, and have not been sorted by these keys."""
        return _key_names(parts) not in self._sorted and self._have_ascending_times

    @cached_property
    def _have_ascending_times(self) -> bool:
        sides = self.rows.time, self.events.time
        return all(len(time) and time[0] > NO_TIME and is_ascending(time) for time in sides)

    def _sides(self, parts: Parts) -> tuple[Sorted, Sorted]:
        name = _key_names(parts)
        if name not in self._sorted:
            keys = self.keys(parts)
            rows, events = self._together(
                [
                    lambda: _in_order(keys.rows, self.rows.time, keys.size),
                    lambda: _in_order(keys.events, self.events.time, keys.size),
                ]
            )
            self._sorted[name] = (rows, events)
        return self._sorted[name]

    def _filtered(self, rows: Sorted, where: str, known: Array | None) -> Sorted:
        if not where and known is None:
            return rows
        used = np.ones(len(self.rows.time), bool)
        if where:
            used &= np.asarray(pc.fill_null(self.rows.columns[where], False), bool)
        if known is not None:
            used &= known > NO_TIME
        kept = used[rows.order]
        return Sorted(rows.order[kept], np.concatenate([[0], np.cumsum(kept)])[rows.starts], rows.time[kept])


def _in_order(keys: Array, time: Array, size: int) -> Sorted:
    has_time = time > NO_TIME
    return Sorted(*order_by_key(keys if has_time.all() else np.where(has_time, keys, -1), time, size))


def _key_names(parts: Parts) -> tuple[str, ...]:
    return tuple(one.identity for one in (*parts.other, *parts.own))
