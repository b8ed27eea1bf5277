"""Logs with histories: for each event a candidate item and what its user had before, strictly earlier, from two public logs of interactions.

An interaction is an event of label 1. Beside it is an event of label 0 with another item, drawn from the items of others by how often they occur: of
films, from all interactions of the training range, and of news, from the clicks of the hour before. Items that the user has at any time are not drawn, and a
click on an article that the user had before is no event: else the history would say which label an event has.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from trainer.model.inputs import TypedInput
from trainer.run.reading.columns import LABEL_COLUMN
from transforms.types import ColumnType, Dense, DType, Ragged

Array = np.ndarray[Any, np.dtype[Any]]

#: The ids of a history at most.
LENGTH = 50
#: An event has at least so many interactions before it.
_LEAST = 3
#: Upper bounds of ages in seconds, but for the last bucket.
_AGES_SECS = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400)
_TEST_SHARE = 0.15
_REDRAWN = 20


@dataclass(frozen=True, slots=True, eq=False)
class HistoryLog:
    """A log in memory, in time order.

    Attributes:
        name: of the log.
        inputs: ``history``, ``item``, and where times are known ``ages``, as many as the history has.
        trained, tested: columns of the inputs and labels.
        users: of each tested event, int64.
    """

    name: str
    inputs: tuple[TypedInput, ...]
    trained: pa.Table
    tested: pa.Table
    users: Array


@dataclass(frozen=True, slots=True, eq=False)
class _Interactions:
    """Interactions sorted by user and then by time.

    Attributes:
        users, items: int64.
        times: milliseconds; of films the share of the user's interactions.
        first: the position of the first interaction of the user of each.
        earlier: the position up to which the interactions of the user are strictly earlier, of each.
    """

    users: Array
    items: Array
    times: Array
    first: Array
    earlier: Array

    @classmethod
    def of(cls, users: Array, items: Array, times: Array) -> _Interactions:
        order = np.lexsort((np.arange(len(users)), times, users))
        users, items, times = users[order], items[order], times[order]
        begins = np.r_[True, users[1:] != users[:-1]]
        moments = begins | np.r_[True, times[1:] != times[:-1]]
        places = np.arange(len(users))
        return cls(
            users,
            items,
            times,
            np.maximum.accumulate(np.where(begins, places, 0)),
            np.maximum.accumulate(np.where(moments, places, 0)),
        )

    def is_first_of_item(self) -> Array:
        """Whether the user has the item for the first time, of each."""
        found = np.zeros(len(self.items), bool)
        found[np.unique(np.stack([self.users, self.items], axis=1), axis=0, return_index=True)[1]] = True
        return found


def films(file: Path, events: int, seed: int = 0) -> HistoryLog:
    """MovieLens-1M, whose interactions have an order and no times. The newest share of each user's interactions is tested."""
    with gzip.open(file) as stream:
        table = pyarrow.csv.read_csv(stream, parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False))
    users, seq, items = (table[name].to_numpy().astype(np.int64) for name in ("user_id", "seq", "movie_id"))
    counts = np.bincount(users)
    log = _Interactions.of(users, items, (seq - 1) / counts[users])
    is_old = log.times < 1 - _TEST_SHARE
    popular = log.items[is_old]

    def draw(source: np.random.Generator, positions: Array) -> Array:
        return popular[source.integers(0, len(popular), len(positions))]

    return _made("films", log, is_old, draw, int(items.max()) + 1, events, seed, has_ages=False)


def news(folder: Path, hours: int, events: int, seed: int = 0) -> HistoryLog:
    """The first hours of Globo's clicks; the newest share of all clicks is tested."""
    parts = [pyarrow.csv.read_csv(folder / f"clicks_hour_{hour:03d}.csv.gz") for hour in range(hours)]
    table = pa.concat_tables(one for one in parts if one.num_rows)
    users, times, articles = (
        table[name].to_numpy().astype(np.int64) for name in ("user_id", "click_timestamp", "click_article_id")
    )
    items = np.unique(articles, return_inverse=True)[1].astype(np.int64)
    log = _Interactions.of(users, items, times)
    by_time = np.argsort(log.times, kind="stable")
    sorted_times, clicked = log.times[by_time], log.items[by_time]

    def draw(source: np.random.Generator, positions: Array) -> Array:
        at = log.times[positions]
        low, high = np.searchsorted(sorted_times, at - 3_600_000), np.searchsorted(sorted_times, at)
        return clicked[low + (source.random(len(at)) * np.maximum(high - low, 1)).astype(np.int64)]

    end = np.quantile(times, 1 - _TEST_SHARE)
    return _made("news", log, log.times < end, draw, int(items.max()) + 1, events, seed, has_ages=True)


def _made(
    name: str, log: _Interactions, is_old: Array, draw: Any, buckets: int, events: int, seed: int, *, has_ages: bool
) -> HistoryLog:
    """The log of interactions, split into those that ``is_old`` has and the others."""
    source = np.random.default_rng(seed)
    known = np.unique(log.users * buckets + log.items)
    may_be = (log.earlier - log.first >= _LEAST) & log.is_first_of_item()
    trained, tested = (
        _events(log, np.flatnonzero(may_be & chosen), most, source, known, draw, buckets, has_ages=has_ages)
        for chosen, most in ((is_old, events), (~is_old, events // 5))
    )
    types: dict[str, ColumnType] = {"history": Ragged(DType.INT64, buckets), "item": Dense(DType.INT64, buckets)}
    if has_ages:
        types["ages"] = Ragged(DType.INT64, len(_AGES_SECS) + 1)
    return HistoryLog(name, tuple(TypedInput(*one) for one in types.items()), trained[0], *tested)


def _events(
    log: _Interactions,
    positions: Array,
    most: int,
    source: np.random.Generator,
    known: Array,
    draw: Any,
    buckets: int,
    *,
    has_ages: bool,
) -> tuple[pa.Table, Array]:
    """At most so many events of both labels, in time order, and their users."""
    positions = np.sort(source.permutation(positions)[: most // 2])
    others = _drawn(log, known, buckets, lambda at: draw(source, at), positions)
    positions, others = positions[others >= 0], others[others >= 0]
    positions, items = np.tile(positions, 2), np.concatenate([log.items[positions], others])
    labels = np.repeat([1, 0], len(others))
    order = np.lexsort((source.random(len(positions)), log.times[positions]))
    positions = positions[order]
    return _table(log, positions, items[order], labels[order], has_ages=has_ages), log.users[positions]


def _drawn(log: _Interactions, known: Array, buckets: int, draw: Any, positions: Array) -> Array:
    """An item for each position that its user has at no time; -1 where none was found."""
    found = np.full(len(positions), -1)
    left = np.arange(len(positions))
    for _ in range(_REDRAWN):
        items = draw(positions[left])
        keys = log.users[positions[left]] * buckets + items
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        fits = known[at] != keys
        found[left[fits]] = items[fits]
        left = left[~fits]
    return found


def _table(log: _Interactions, positions: Array, items: Array, labels: Array, *, has_ages: bool) -> pa.Table:
    """The columns of events: the newest ids of histories last."""
    stops = log.earlier[positions]
    counts = np.minimum(stops - log.first[positions], LENGTH)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    at = np.arange(offsets[-1]) + np.repeat(stops - counts - offsets[:-1], counts)
    columns = {"history": _lists(offsets, log.items[at]), "item": pa.array(items)}
    if has_ages:
        secs = (np.repeat(log.times[positions], counts) - log.times[at]) / 1000
        columns["ages"] = _lists(offsets, np.searchsorted(_AGES_SECS, secs, side="right"))
    return pa.table({**columns, LABEL_COLUMN: pa.array(labels)})


def _lists(offsets: Array, values: Sequence[int] | Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, pa.int64()))
