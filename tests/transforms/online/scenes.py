"""Small logs whose rows become known late, and the joined columns of their events."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import transforms.expressions.expression as hr
from transforms.expressions.tables import KeyedTable, table
from transforms.joins.column import joined_columns_of
from transforms.joins.definition import JoinDefinition
from transforms.joins.evaluation import joined_columns
from transforms.online.joined_table import JoinedTable

START = datetime(2026, 3, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
SECOND = timedelta(seconds=1)
SCHEMA = pa.schema([("id", pa.string()), ("m", pa.int64()), ("time", TIME), ("known", TIME), ("n", pa.int64()), ("x", pa.float64()), ("name", pa.string()), ("good", pa.bool_())])  # fmt: skip
EVENT_SCHEMA = pa.schema([("user", pa.string()), ("m", pa.int64()), ("at", TIME)])

#: The values of each column of a row; rows are drawn from a seed, since lists of Hypothesis are too short for windows to differ.
_VALUES: dict[str, tuple[Any, ...]] = {
    "id": (None, "a", "a", "a", "b", "b"),
    "m": (None, 0, 1, 1),
    "time": (None, *(START + secs * SECOND for secs in range(13))),
    "known": (None, *(START + secs * SECOND for secs in range(13))),
    "n": (None, *range(-3, 4)),
    "x": (None, 0.1, 0.2, 0.3, 1e16, -1e16, -0.0, 0.0, math.inf, math.nan),
    "name": (None, "", "x", "ü"),
    "good": (None, True, True, False),
}
_EVENT: dict[str, tuple[Any, ...]] = {
    "user": (None, "a", "a", "b", "b", "c"),
    "m": (None, 0, 1, 1),
    "at": _VALUES["time"][1:],
}


def _drawn(columns: Mapping[str, tuple[Any, ...]], rows: int, seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [{name: draw.choice(values) for name, values in columns.items()} for _ in range(rows)]


_SEEDS = st.integers(0, 2**32)
ROWS = st.builds(lambda rows, seed: _drawn(_VALUES, rows, seed), st.integers(0, 40), _SEEDS)
EVENTS = st.builds(lambda rows, seed: _drawn(_EVENT, rows, seed), st.integers(1, 10), _SEEDS)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "available_after": st.integers(0, 3).map(lambda secs: secs * SECOND),
        "known_at": st.just("known"),
        "including_equal": st.just(True),
        "as_of": st.just("day"),
    },
)
WINDOW = st.none() | st.integers(0, 6).map(lambda secs: secs * SECOND)


def keyed(options: Mapping[str, Any]) -> KeyedTable:
    zone = {"zone": "Europe/Berlin"} if "as_of" in options else {}
    return table("log", **options, **zone).by("id", equals=hr.text("user"))


def stretched(given: list[dict[str, Any]], factor: int) -> list[dict[str, Any]]:
    """The same rows or events with times that are further apart."""
    return [{name: START + (value - START) * factor if isinstance(value, datetime) else value for name, value in one.items()} for one in given]  # fmt: skip


def every_aggregate(keyed: KeyedTable, window: timedelta | None) -> list[hr.Expr]:
    """Each aggregate, over several types of values."""
    x, n, good, name, time = hr.float64("x"), hr.int64("n"), hr.boolean("good"), hr.text("name"), hr.timestamp("time")
    half = max(window or SECOND, SECOND) / 2
    return [
        keyed.latest(x, max_age=window), keyed.latest(hr.text("name"), order=n, max_age=window), keyed.first(n, window=window),
        keyed.where(good).first(x), keyed.count(window=window), keyed.by(hr.int64("m")).count(window=window), keyed.sum(x, window=window),
        keyed.sum(n * 2, window=window), keyed.mean(x, window=window), keyed.min(x, window=window), keyed.max(n, window=window),
        keyed.ratio(good, window=window, prior=(1, 4)), keyed.where(good).latest(n, max_age=window), keyed.where(good).sum(x),
        keyed.last(3, x, window=window), keyed.where(good).last(2, name, order=n), keyed.last(2, time), keyed.last(9, good), keyed.ages(3, window=window), keyed.ages(2, x),
        keyed.decayed(half_life=half), keyed.decayed(x, half_life=half, window=window), keyed.where(good).decayed(n, half_life=half), keyed.where(good).count(),
        keyed.distinct(name, window=window, exact_most=1, precision=4), keyed.distinct(x, window=window), keyed.min(time), keyed.max(good), keyed.max(x.log1p(), window=window),
    ]  # fmt: skip


def hopping(keyed: KeyedTable, window: timedelta) -> list[hr.Expr]:
    """Windows whose starts are moved back by as much as two thirds of them."""
    x, hop = hr.float64("x"), window * 2 / 3
    return [keyed.sum(x, window=window, hop=hop), keyed.sum(x, window=window + SECOND, hop=hop), keyed.first(x, window=window, hop=hop), keyed.last(3, x, window=window, hop=hop)]  # fmt: skip


def some_aggregates(options: list[dict[str, Any]], window: timedelta | None) -> st.SearchStrategy[list[hr.Expr]]:
    """One to three of them, so that rows which others need may be left out; by any of several rules."""
    found = [one for each in options for one in every_aggregate(keyed(each), window)]
    found += [one for each in options if window and "as_of" not in each for one in hopping(keyed(each), window)]
    return st.lists(st.sampled_from(found), min_size=1, max_size=3, unique_by=id)


def definitions_of(columns: list[hr.Expr]) -> dict[str, JoinDefinition]:
    return joined_columns_of([one.node for one in columns])


def joined_table(columns: list[hr.Expr], name: str = "log") -> JoinedTable:
    return JoinedTable(name, "time", definitions_of(columns))


def offline(definitions: Mapping[str, JoinDefinition], rows: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[dict[str, Any]]:  # fmt: skip
    """What each event sees, computed at once."""
    found = joined_columns(definitions, pa.Table.from_pylist(events, EVENT_SCHEMA), "at", pa.Table.from_pylist(rows, SCHEMA), "time")  # fmt: skip
    return [{name: values[k].as_py() for name, values in found.items()} for k in range(len(events))]


def bits(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer so that equal bits, and they alone, are equal."""
    return {name: _bits(value) for name, value in answer.items()}


def _bits(value: Any) -> Any:
    if isinstance(value, list):
        return [_bits(one) for one in value]
    return np.float64(value).tobytes() if isinstance(value, float) else (type(value).__name__, value)


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
