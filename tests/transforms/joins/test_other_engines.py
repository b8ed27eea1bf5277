"""Joined columns against the point-in-time joins of Polars and DuckDB, where these are installed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.support.join_rivals import duckdb_latest, duckdb_windows, polars_latest
from transforms.expressions.expression import int64
from transforms.expressions.tables import table
from transforms.joins.definition import JoinDefinition
from transforms.joins.evaluation import joined_columns

DAY_US = 86_400 * 10**6
WINDOWS_SECS = (3_600, 86_400, 5 * 86_400)
KEYED = table("log").by(int64("key"))


def logs(seed: int) -> tuple[pa.Table, pa.Table]:
    """Events and rows in the order of time, with equal times on both sides but none of one key among rows."""
    rng = np.random.default_rng(seed)
    spots = np.sort(rng.choice(20 * 24 * 40, 8_000, replace=False))  # a key and one of the hours of 20 days
    rows = pa.table({"key": spots % 40, "time": _times(spots // 40), "value": rng.integers(-100, 100, len(spots))})
    hours = np.sort(rng.integers(0, 20 * 24, 5_000))
    return pa.table({"key": rng.integers(0, 45, 5_000), "time": _times(hours), "event": np.arange(5_000)}), rows


def _times(hours: np.ndarray) -> pa.Array:
    return pa.array(hours * 3_600 * 10**6, pa.int64()).cast(pa.timestamp("us"))


def computed(columns: dict[str, JoinDefinition], events: pa.Table, rows: pa.Table) -> pa.Table:
    return pa.table(joined_columns(columns, events, "time", rows, "time", threads=2))


def test_latest_is_that_of_polars() -> None:
    pytest.importorskip("polars")
    events, rows = logs(1)
    ours = computed({"value": KEYED.latest(int64("value")).node.definition}, events, rows)  # type: ignore[attr-defined]
    theirs = polars_latest(events, rows).sort_by("event")
    assert theirs["value"].to_pylist() == ours["value"].to_pylist()


def test_latest_is_that_of_duckdb() -> None:
    pytest.importorskip("duckdb")
    events, rows = logs(2)
    ours = computed({"value": KEYED.latest(int64("value")).node.definition}, events, rows)  # type: ignore[attr-defined]
    theirs = duckdb_latest(events, rows, threads=2).sort_by("event")
    assert theirs["value"].to_pylist() == ours["value"].to_pylist()


def test_windows_are_those_of_duckdb() -> None:
    pytest.importorskip("duckdb")
    events, rows = logs(3)
    aggregates = {"count": "count(value)", "sum": "sum(value)", "max": "max(value)", "distinct": "count(distinct value)"}  # fmt: skip
    value, columns = int64("value"), {}
    for secs in WINDOWS_SECS:
        window = f"{secs}s"
        made = {"count": KEYED.count(window=window), "sum": KEYED.sum(value, window=window), "max": KEYED.max(value, window=window), "distinct": KEYED.distinct(value, window=window)}  # fmt: skip
        columns |= {f"{name}_{secs}": one.node.definition for name, one in made.items()}  # type: ignore[attr-defined]
    ours = computed(columns, events, rows)
    theirs = duckdb_windows(events, rows, WINDOWS_SECS, aggregates, threads=2).sort_by("event")  # fmt: skip
    for name in columns:
        expected = theirs[name].fill_null(0) if name.startswith("sum") else theirs[name]
        assert ours[name].to_pylist() == expected.to_pylist(), name
