"""Computing joined columns of fragments: reading both tables, and the values."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.joins.evaluation import joined_columns
from warehouse.joins.buckets import KeyBuckets
from warehouse.joins.time_ranges import as_times
from warehouse.joins.views import TimedFragment, Views, bounds
from warehouse.matching.join_checks import time_column
from warehouse.models.joined_columns import JoinedRecord
from warehouse.storage.storage import Storage
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.overlays import live_mask
from warehouse.tables.raw import read_raw
from warehouse.tables.table import Table

#: The name that the time of an event and of a row has while a column is computed; no column of a table has it.
_TIME = "@time"
#: The rows of the other table that are in memory together, about.
MOST_ROWS = 20_000_000


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
    for group in _by_keys(records):
        for name, values in _Computation(storage, tables, views, own, group).columns().items():
            ends = np.cumsum([one.placed.fragment.rows for one in own])
            found[name] = [
                values.slice(int(end) - one.placed.fragment.rows, one.placed.fragment.rows)
                for one, end in zip(own, ends, strict=True)
            ]
    return found


def _by_keys(records: Iterable[JoinedRecord]) -> Iterable[list[JoinedRecord]]:
    """The columns by their keys, which are divided into buckets together."""
    found: defaultdict[str, list[JoinedRecord]] = defaultdict(list)
    for record in records:
        keys = [[pair.other, pair.own] for pair in record.definition.keys]
        found[json.dumps(keys, sort_keys=True)].append(record)
    return found.values()


class _Computation:
    """The columns of one set of keys over fragments."""

    def __init__(
        self,
        storage: Storage,
        tables: tuple[Table, Table],
        views: Views,
        own: Sequence[TimedFragment],
        records: Sequence[JoinedRecord],
    ) -> None:
        self._storage, self._own, self._records = storage, own, records
        self._times = tuple(time_column(one, one.name) for one in tables)
        self._definitions = {one.column: one.definition for one in records}
        self._seen, self._low, self._high = _seen(views, own, records)

    def columns(self) -> dict[str, pa.Array]:
        """The values over all fragments, in their order."""
        rows = sum(one.placed.fragment.live_rows for one in self._seen)
        buckets = -(-rows // MOST_ROWS)
        events = self._events()
        if buckets <= 1:
            return joined_columns(self._definitions, events, _TIME, self._rows(), _TIME)
        return self._by_bucket(events, KeyBuckets(self._records[0].definition.keys, buckets))

    def _by_bucket(self, events: pa.Table, buckets: KeyBuckets) -> dict[str, pa.Array]:
        bucket_of = buckets.of_events(events)
        order = np.argsort(bucket_of, kind="stable")
        parts: defaultdict[str, list[pa.Array]] = defaultdict(list)
        for number in range(buckets.count):
            chosen = events.filter(pa.array(bucket_of == number))
            rows = self._rows(partial(_is_in_bucket, buckets, number))
            for name, values in joined_columns(self._definitions, chosen, _TIME, rows, _TIME).items():
                parts[name].append(values)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return {name: pa.concat_arrays(arrays).take(pa.array(places)) for name, arrays in parts.items()}

    def _events(self) -> pa.Table:
        columns = sorted(frozenset[str]().union(*(record.own_columns for record in self._records)))
        parts = []
        for one in self._own:
            raw = read_raw(self._storage, one.placed.fragment, sorted({*columns, self._times[0]}))
            parts.append(raw.select(columns).append_column(_TIME, as_times(raw.column(self._times[0]))))
        return _joined(parts)

    def _rows(self, chosen: Callable[[pa.Table], Array] | None = None) -> pa.Table:
        """The rows of the other table that events may see; ``chosen``: whether a row is wanted."""
        columns = sorted(frozenset[str]().union(*(record.other_columns for record in self._records)))
        parts = []
        for other in self._seen:
            raw = read_raw(self._storage, other.placed.fragment, sorted({*columns, self._times[1]}))
            part = raw.select(columns).append_column(_TIME, as_times(raw.column(self._times[1])))
            part = part.filter(_needed(self._storage, other.placed, part.column(_TIME), self._low, self._high))
            parts.append(part if chosen is None else part.filter(pa.array(chosen(part))))
        return _joined(parts) if parts else _no_rows(columns, self._records)


def _is_in_bucket(buckets: KeyBuckets, number: int, rows: pa.Table) -> Array:
    found: Array = buckets.of_rows(rows) == number
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


def _needed(storage: Storage, placed: PlacedFragment, times: pa.ChunkedArray, low: int, high: int) -> pa.ChunkedArray:
    """True for rows that are not deleted and have a time in the range."""
    counted = times.cast(pa.int64())
    inside = pc.and_(
        pc.greater_equal(counted, pa.scalar(low, pa.int64())), pc.less_equal(counted, pa.scalar(high, pa.int64()))
    )
    live = live_mask(storage, placed.fragment)
    chosen = pc.fill_null(inside, False)
    return chosen if live is None else pc.and_(chosen, pa.chunked_array([live]))


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of all parts; text with and without a dictionary becomes one type."""
    return pa.concat_tables([_plain(part) for part in parts], promote_options="permissive")


def _plain(part: pa.Table) -> pa.Table:
    for at, field in enumerate(part.schema):
        if pa.types.is_dictionary(field.type):
            part = part.set_column(at, field.name, part.column(at).cast(field.type.value_type))
    return part


def _no_rows(columns: Sequence[str], records: Sequence[JoinedRecord]) -> pa.Table:
    """A table of the declared types without a row."""
    types: Mapping[str, pa.DataType] = {name: kind for record in records for name, kind in record.other_types.items()}
    fields = [pa.field(name, types[name]) for name in columns]
    return pa.schema([*fields, pa.field(_TIME, pa.timestamp("us"))]).empty_table()
