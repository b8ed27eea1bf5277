"""Joined columns against the point-in-time joins of Polars and DuckDB: the latest value, and aggregates of many windows.

    python -m benchmarks.joined_columns [--rounds N] [--window-rows N] [--threads N] [--seed N]

Events and rows are in the order of time, over 30 days; keys are Zipf-distributed among 100,000. Rows are seen strictly before an event. All sides have the same number of
threads, their results are compared, and they run alternately in several rounds, so that a slow moment affects all of them. *Memory* begins and ends with tables in memory,
*Parquet* with files (snappy, columns as written).

Windows: ten windows of 1 to 10 days, each with count, sum and maximum; DuckDB's are ``RANGE`` frames, which take minutes, so they have fewer rows and one round.

Targets, as in the issue: the latest value in at most 0.5 of Polars' time and 0.25 of DuckDB's; windows 50 times as fast as DuckDB.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.harness import THREADS, Side, machine, measure
from benchmarks.support.join_rivals import Source, as_table, duckdb_latest, duckdb_windows, polars_latest
from transforms.expressions.expression import Expr, int64
from transforms.expressions.tables import table
from transforms.joins.column import joined_columns_of
from transforms.joins.columns_read import columns_read
from transforms.joins.evaluation import joined_columns

KEYS = 100_000
DAY_SECS = 86_400
WINDOWS_SECS = tuple(days * DAY_SECS for days in range(1, 11))
AGGREGATES = {"count": "count(value)", "sum": "sum(value)", "max": "max(value)"}
SIZES = ((1_000_000, 1_000_000), (200_000, 2_000_000))


def make_log(rng: np.random.Generator, size: int, last: str) -> pa.Table:
    """Keys, times and a number, in the order of time."""
    keys = rng.zipf(1.2, size) % KEYS
    times = np.sort(rng.integers(0, 30 * DAY_SECS * 10**6, size))
    number = np.arange(size) if last == "event" else rng.integers(-1000, 1000, size)
    return pa.table({"key": keys, "time": pa.array(times, pa.int64()).cast(pa.timestamp("us")), last: number})


def ours(columns: Mapping[str, Expr], events: Source, rows: Source, threads: int) -> pa.Table:
    """Joined columns of these names."""
    definitions = {
        name: one for name, expression in columns.items() for one in joined_columns_of([expression.node]).values()
    }
    read = [columns_read(one) for one in definitions.values()]
    own, other = (
        as_table(source, sorted(frozenset[str]().union({"time"}, *names)))
        for source, names in zip((events, rows), zip(*read, strict=True), strict=True)
    )
    return pa.table(joined_columns(definitions, own, "time", other, "time", threads=threads))


def compare_latest(rng: np.random.Generator, sizes: tuple[int, int], rounds: int, threads: int) -> None:
    """Print the times of the latest value, from memory and from Parquet."""
    events, rows = make_log(rng, sizes[0], "event"), make_log(rng, sizes[1], "value")
    latest = {"value": table("log").by(int64("key")).latest(int64("value"))}
    _check_equal(ours(latest, events, rows, threads), polars_latest(events, rows))
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "events.parquet", Path(folder) / "rows.parquet"
        for path, whole in zip(paths, (events, rows), strict=True):
            pq.write_table(whole, path)
        sides: tuple[tuple[str, tuple[Source, Source]], ...] = (("memory", (events, rows)), ("Parquet", paths))
        for kind, sources in sides:
            print(f"\nlatest, {sizes[0]:,} events x {sizes[1]:,} rows, {kind}")
            _compare(
                {
                    "Headrace": partial(ours, latest, *sources, threads),
                    "Polars join_asof": partial(polars_latest, *sources),
                    "DuckDB ASOF": partial(duckdb_latest, *sources, threads),
                },
                rounds,
            )


def compare_windows(rng: np.random.Generator, size: int, rounds: int, threads: int) -> None:
    """Print the times of ten windows with three aggregates each."""
    events, rows = make_log(rng, size, "event"), make_log(rng, size, "value")
    keyed, value = table("log").by(int64("key")), int64("value")
    columns = {
        f"{name}_{secs}": made
        for secs in WINDOWS_SECS
        for name, made in (("count", keyed.count(window=f"{secs}s")), ("sum", keyed.sum(value, window=f"{secs}s")), ("max", keyed.max(value, window=f"{secs}s")))
    }  # fmt: skip
    print(
        f"\n{len(columns)} columns: {len(WINDOWS_SECS)} windows x {len(AGGREGATES)} aggregates, {size:,} events x {size:,} rows, memory"
    )
    found: dict[str, pa.Table] = {}
    _compare(
        {
            "Headrace": lambda: found.update(ours=ours(columns, events, rows, threads)),
            "DuckDB RANGE": lambda: found.update(
                theirs=duckdb_windows(events, rows, WINDOWS_SECS, AGGREGATES, threads)
            ),
        },
        rounds,
        warm_up=lambda: ours(columns, events[:1000], rows[:1000], threads),
    )
    theirs = found["theirs"].sort_by("event")
    for name in columns:
        expected = theirs[name].fill_null(0) if name.startswith("sum") else theirs[name]
        assert found["ours"][name].to_pylist() == expected.to_pylist(), name


def _compare(
    sides: Mapping[str, Callable[[], object]], rounds: int, warm_up: Callable[[], object] | None = None
) -> None:
    """Print wall-clock and processor seconds of all sides; the latter, of all threads, say more on a machine that others use."""
    used: dict[str, list[float]] = {name: [] for name in sides}

    def run(name: str) -> None:
        begun = time.process_time()
        sides[name]()
        used[name].append(time.process_time() - begun)

    measured = measure(
        [Side(name, partial(run, name), warm_up or sides[name]) for name in sides], rounds, lambda _: None
    )
    first = measured[0]
    for side in measured:
        ratios = [other / own for own, other in zip(first.secs, side.secs, strict=True)]
        of_cpu = statistics.median(other / own for own, other in zip(used[first.name], used[side.name], strict=True))
        ratio = (
            ""
            if side is first
            else f"  Headrace is {statistics.median(ratios):.2f}x as fast ({min(ratios):.2f} to {max(ratios):.2f}); {of_cpu:.2f}x by processor seconds"
        )
        print(
            f"  {side.name:<17} {side.median_secs:8.3f} s, {statistics.median(used[side.name]):8.3f} s of processors{ratio}",
            flush=True,
        )


def _check_equal(found: pa.Table, by_polars: pa.Table) -> None:
    assert found["value"].to_pylist() == by_polars.sort_by("event")["value"].to_pylist()


def main() -> None:
    """Print both sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window-rows", type=int, default=200_000)
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{machine()}, {options.threads} threads, Polars {pl.__version__} with {pl.thread_pool_size()}, load {os.getloadavg()[0]:.1f}"
    )
    rng = np.random.default_rng(options.seed)
    begun = time.perf_counter()
    for sizes in SIZES:
        compare_latest(rng, sizes, options.rounds, options.threads)
    compare_windows(rng, options.window_rows, 1, options.threads)
    print(f"\n{time.perf_counter() - begun:.0f} s in all")


if __name__ == "__main__":
    main()
