"""Computing joined columns of fragments: reading both tables, and the values."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.columns.arrays import one_array
from transforms.joins.evaluation import joined_columns
from warehouse.files.rows_by_key import ROW
from warehouse.joins.keys import Keys
from warehouse.joins.rows_of_keys import RowsOfKeys
from warehouse.joins.time_ranges import as_times
from warehouse.joins.views import TimedFragment, Views, bounds
from warehouse.matching.join_checks import time_column
from warehouse.models.joined_columns import JoinedRecord
from warehouse.models.joined_types import other_types
from warehouse.storage.storage import Storage
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.overlays import live_mask
from warehouse.tables.raw import read_raw
from warehouse.tables.table import Fragment, Table

#: The name that the time of an event and of a row has while a column is computed; no column of a table has it.
TIME = "@time"
#: The rows of the other table that are in memory together, about.
MOST_ROWS = 20_000_000
#: Fragments that are read at the same time, each of which may be in memory as a whole.
_READ_AT_ONCE = 4


def computed_columns(
    storage: Storage,
    tables: tuple[Table, Table],
    views: Views,
    own: Sequence[TimedFragment],
    records: Sequence[JoinedRecord],
) -> dict[str, list[pa.Array]]:
    """The values of joined columns over fragments: for each column one array a fragment, value i for event i, deleted ones included.

    Where events may see more than :data:`MOST_ROWS` rows, keys are divided into buckets, and the other table is read once for each.

    Args:
        storage: where the files are.
        tables: the table of the fragments, and the one that is joined.
        views: what fragments see of it.
        own: the fragments, in time order.
        records: the joined columns, all from the same other table.

    Raises what reading raises, and :class:`~transforms.errors.DataError` for an expression that fails.
    """
    found: dict[str, list[pa.Array]] = {}
    for group in by_keys(records):
        for name, values in Computation(storage, tables, views, own, group).columns().items():
            found[name] = split(values, own)
    return found


def split(values: pa.Array, own: Sequence[TimedFragment]) -> list[pa.Array]:
    """The values of each of the fragments, from those of all."""
    ends = np.cumsum([one.placed.fragment.rows for one in own])
    return [
        values.slice(int(end) - one.placed.fragment.rows, one.placed.fragment.rows)
        for one, end in zip(own, ends, strict=True)
    ]


def by_keys(records: Iterable[JoinedRecord]) -> Iterable[list[JoinedRecord]]:
    """The columns by their keys, which are divided into buckets together."""
    found: defaultdict[str, list[JoinedRecord]] = defaultdict(list)
    for record in records:
        keys = [[pair.other, pair.own] for pair in record.definition.keys]
        found[json.dumps(keys, sort_keys=True)].append(record)
    return found.values()


class Computation:
    """The columns of one set of keys over fragments.

    Attributes:
        own: The fragments.
        keys: The keys.
        definitions: The columns by name.
        seen: The fragments of the other table that events may see.
        threads: The most threads that compute; the values do not depend on it.
        storage: Where the files are.
        times: The time columns of the two tables.
        range_micros: The first and the last time of rows that events may see.
    """

    def __init__(
        self,
        storage: Storage,
        tables: tuple[Table, Table],
        views: Views,
        own: Sequence[TimedFragment],
        records: Sequence[JoinedRecord],
        threads: int = 1,
    ) -> None:
        self.storage, self._records, self.own, self.threads = storage, records, own, threads
        self._names = (tables[0].name, tables[1].name)
        self.keys = Keys(records[0].definition.keys)
        self.times = (time_column(tables[0], tables[0].name), time_column(tables[1], tables[1].name))
        self.definitions = {one.column: one.definition for one in records}
        self.seen, *bounds_micros = _seen(views, own, records)
        self.range_micros = (bounds_micros[0], bounds_micros[1])

    def columns(self) -> dict[str, pa.Array]:
        """The values over all fragments, in their order."""
        rows = sum(one.placed.fragment.live_rows for one in self.seen)
        buckets = -(-rows // MOST_ROWS)
        events = self.events()
        if buckets <= 1:
            return joined_columns(self.definitions, events, TIME, self.rows(), TIME, threads=self.threads)
        return self._by_bucket(events, buckets)

    def _by_bucket(self, events: pa.Table, buckets: int) -> dict[str, pa.Array]:
        bucket_of = self.keys.buckets_of_events(events, buckets)
        order = np.argsort(bucket_of, kind="stable")
        parts: defaultdict[str, list[pa.Array]] = defaultdict(list)
        for number in range(buckets):
            chosen = events.filter(pa.array(bucket_of == number))
            rows = self.rows(partial(_is_in_bucket, self.keys, buckets, number))
            for name, values in joined_columns(
                self.definitions, chosen, TIME, rows, TIME, threads=self.threads
            ).items():
                parts[name].append(values)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return {name: pa.concat_arrays(arrays).take(pa.array(places)) for name, arrays in parts.items()}

    def events(self) -> pa.Table:
        """What is read of the events of all fragments, with their times."""
        parts = [read_events(self.storage, one.placed.fragment, self._own_columns, self.times[0]) for one in self.own]
        return joined_parts(parts)

    @property
    def _own_columns(self) -> list[str]:
        return sorted(frozenset[str]().union(*(record.own_columns for record in self._records)))

    def changed_rows(self, changed: Sequence[tuple[TimedFragment, TimedFragment | None]]) -> pa.Table:
        """What is read of rows of the other table, with their times: all rows of a fragment, or those that are deleted in one of two and not in both."""
        columns = self.other_columns
        parts = []
        for other, same in changed:
            part = read_events(self.storage, other.placed.fragment, columns, self.times[1])
            parts.append(part if same is None else part.filter(_differ(self.storage, other.placed, same.placed)))
        return joined_parts(parts) if parts else _no_rows(columns, self._records)

    @property
    def events_of_keys(self) -> RowsOfKeys:
        """Reads the events that have some keys, with what :meth:`events` reads of them."""
        columns, time = self._own_columns, self.times[0]
        return RowsOfKeys(self.storage, self._names[0], self.keys.names[0], columns, time, self.keys.hashes_of_events, partial(self._read, columns, time))  # fmt: skip

    @property
    def rows_of_keys(self) -> RowsOfKeys:
        """Reads the rows of the other table that have some keys."""
        columns, time = self.other_columns, self.times[1]
        return RowsOfKeys(self.storage, self._names[1], self.keys.names[1], columns, time, self.keys.hashes_of_rows, partial(self._read, columns, time))  # fmt: skip

    def _read(self, columns: Sequence[str], time: str, fragment: Fragment) -> pa.Table:
        return joined_parts([read_events(self.storage, fragment, columns, time)])

    @property
    def read_of_rows(self) -> frozenset[str]:
        """The columns of the other table that decide, with its time."""
        return frozenset({*self.other_columns, self.times[1]})

    @property
    def other_columns(self) -> list[str]:
        """The columns of the other table that are read, beside the time."""
        return sorted(frozenset[str]().union(*(record.other_columns for record in self._records)))

    def visible_rows(self, hashes: Array) -> pa.Table:
        """The rows of the other table that events may see and whose keys have one of these hashes."""
        read = self.rows_of_keys

        def visible(other: TimedFragment) -> pa.Table:
            fragment = other.placed.fragment
            part = read.of(fragment, hashes)
            needed = _needed(self.storage, fragment, part.column(TIME), *self.range_micros, part.column(ROW))
            return part.filter(needed).drop_columns([ROW])

        parts = list(self.of_each(visible, self.seen))
        return joined_parts(parts) if parts else _no_rows(self.other_columns, self._records)

    def of_each(
        self, read: Callable[[TimedFragment], pa.Table], fragments: Iterable[TimedFragment]
    ) -> Iterator[pa.Table]:
        """What a function reads of each of the fragments, some at a time."""
        with ThreadPoolExecutor(min(self.threads, _READ_AT_ONCE)) as pool:
            yield from pool.map(read, fragments)

    def rows(self, chosen: Callable[[pa.Table], Array] | None = None) -> pa.Table:
        """The rows of the other table that events may see; ``chosen``: whether a row is wanted."""
        columns = self.other_columns
        parts = []
        for other in self.seen:
            part = read_rows(self.storage, other.placed.fragment, columns, self.times[1], self.range_micros)
            parts.append(part if chosen is None else part.filter(pa.array(chosen(part))))
        return joined_parts(parts) if parts else _no_rows(columns, self._records)


def _is_in_bucket(keys: Keys, buckets: int, number: int, rows: pa.Table) -> Array:
    found: Array = keys.buckets_of_rows(rows, buckets) == number
    return found


def _seen(
    views: Views, own: Sequence[TimedFragment], records: Sequence[JoinedRecord]
) -> tuple[list[TimedFragment], int, int]:
    """The fragments of the other table that events may see, in time order, and the first and the last time of their rows."""
    seen: dict[int, TimedFragment] = {}
    lows: list[int] = []
    highs: list[int] = []
    for record in records:
        for one in own:
            seen.update((other.placed.row, other) for other in views.seen(record.definition, one))
            low, high = bounds(record.definition, one)
            if low is not None and high is not None:
                lows.append(low)
                highs.append(high)
    ordered = sorted(seen.values(), key=lambda one: (one.placed.start, one.placed.partition, one.placed.position))
    return ordered, min(lows, default=0), max(highs, default=-1)


def read_events(storage: Storage, fragment: Fragment, columns: Sequence[str], time: str) -> pa.Table:
    """Columns of all rows of a fragment, with their times in :data:`TIME`."""
    raw = read_raw(storage, fragment, sorted({*columns, time}))
    return raw.select(columns).append_column(TIME, as_times(raw.column(time)))


def read_rows(
    storage: Storage, fragment: Fragment, columns: Sequence[str], time: str, range_micros: tuple[int, int]
) -> pa.Table:
    """As :func:`read_events`, without deleted rows and those outside of the range of times."""
    part = read_events(storage, fragment, columns, time)
    return part.filter(_needed(storage, fragment, part.column(TIME), *range_micros))


def _needed(
    storage: Storage,
    fragment: Fragment,
    times: pa.ChunkedArray,
    low: int,
    high: int,
    numbers: pa.ChunkedArray | None = None,
) -> pa.ChunkedArray:
    """True for rows that are not deleted and have a time in the range; ``numbers``: of the rows, if they are some."""
    counted = times.cast(pa.int64())
    inside = pc.and_(
        pc.greater_equal(counted, pa.scalar(low, pa.int64())), pc.less_equal(counted, pa.scalar(high, pa.int64()))
    )
    live = live_mask(storage, fragment)
    chosen = pc.fill_null(inside, False)
    if live is None:
        return chosen
    return pc.and_(chosen, pa.chunked_array([live if numbers is None else live.take(one_array(numbers))]))


def _differ(storage: Storage, one: PlacedFragment, other: PlacedFragment) -> pa.Array:
    """Whether a row is deleted in one of two versions of a fragment and not in both."""
    rows = one.fragment.rows
    masks = [
        pa.array(np.ones(rows, bool)) if (live := live_mask(storage, each.fragment)) is None else live
        for each in (one, other)
    ]
    return pc.xor(*masks)


def joined_parts(parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of all parts; text with and without a dictionary becomes one type."""
    return pa.concat_tables([_plain(part) for part in parts], promote_options="permissive")


def _plain(part: pa.Table) -> pa.Table:
    for at, field in enumerate(part.schema):
        if pa.types.is_dictionary(field.type):
            part = part.set_column(at, field.name, part.column(at).cast(field.type.value_type))
    return part


def _no_rows(columns: Sequence[str], records: Sequence[JoinedRecord]) -> pa.Table:
    """A table of the declared types without a row."""
    types: Mapping[str, pa.DataType] = {
        name: kind for record in records for name, kind in other_types(record.definition).items()
    }
    fields = [pa.field(name, types[name]) for name in columns]
    return pa.schema([*fields, pa.field(TIME, pa.timestamp("us"))]).empty_table()
