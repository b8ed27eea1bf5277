"""What late rows cost in a warehouse whose joined columns are computed: a worker's time beside the time for all columns from nothing.

    python -m benchmarks.late_joined_rows [--rows N] [--events N] [--days D] [--keys K] [--late N] [--seed N]

A table of rows and one of events over so many days, one file a day, keys evenly distributed. A model joins a count of 7 days, a sum, and the latest value, with an operation
above each. Changes are measured one after the other: late rows of keys that no event has, late rows of keys that events have, first without files of rows by key and then with those that
the first repair has left, and deleted rows. After each the columns are
compared with those of a new computation of everything, bit for bit.

Target, as in the issue: 1,000 late rows in a history of 30 days and 30 million rows in at most 2 % of the time from nothing, and nothing above computed again where no value has
changed. The time depends on how many events have the keys; with the skew of real keys more of them do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks.support.harness import machine
from warehouse import Warehouse, WarehouseConfig, lease_tasks, queue_missing, register_table, submit_model
from warehouse.changes.append import append_rows
from warehouse.changes.deletion import delete_rows
from warehouse.files.digests import column_digest
from warehouse.joins.preview import previewed_columns
from warehouse.joins.refresh import JoinWorker
from warehouse.queue.lease import release_tasks
from warehouse.tables.manifests import current_fragments, get_table

START_DAY = np.datetime64("2026-01-01")
DAY_US = 86_400 * 10**6
START_US = int(START_DAY.astype("datetime64[us]").astype(np.int64))


def write_days(folder: Path, days: int, rows: int, keys: int, seed: int) -> None:
    """One file a day, in the order of time."""
    draw = np.random.default_rng(seed)
    for day in range(days):
        count = rows // days
        times = np.sort(draw.integers(0, DAY_US, count)) + START_US + day * DAY_US
        place = folder / f"date={START_DAY + day}"
        place.mkdir(parents=True)
        pq.write_table(rows_of(times, draw.integers(0, keys, count), draw), place / "part.parquet")


def rows_of(times: np.ndarray, keys: np.ndarray, draw: np.random.Generator) -> pa.Table:
    """Rows with a time, a key and a value."""
    return pa.table({
        "time": pa.array(times, pa.int64()).cast(pa.timestamp("us")), "key": pa.array(keys, pa.int64()),
        "value": pa.array(draw.random(len(times)).round(3)), "label": pa.array(draw.random(len(times)) < 0.5),
    })  # fmt: skip


def refreshed_secs(warehouse: Warehouse) -> tuple[float, int]:
    """The time of a worker until no column is outdated, and the fragments with new values."""
    begun, worker, changed = time.perf_counter(), JoinWorker(warehouse, "worker"), 0
    while (step := worker.step()) is not None:
        assert not step.failed, step.failed
        changed += step.changed_fragments
    return time.perf_counter() - begun, changed


def queued(warehouse: Warehouse) -> int:
    """The memos to compute above the joined columns."""
    queue_missing(warehouse)
    found = lease_tasks(warehouse, "count", limit=10**6)
    release_tasks(warehouse, found)
    return len(found)


def check_columns(warehouse: Warehouse, model: hr.Model) -> float:
    """Compare all columns with a new computation of everything, and return its time."""
    with warehouse.catalog.read() as connection:
        table, fragments = get_table(connection, "events"), current_fragments(connection, "events")
    begun = time.perf_counter()
    found = previewed_columns(warehouse, table, model.joins, fragments)
    spent = time.perf_counter() - begun
    for name, values in found.items():
        assert [column_digest(one) for one in values] == [one.fragment.digests[name] for one in fragments], name
    return spent


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--late", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{options.rows:,} rows and {options.events:,} events over {options.days} days, {options.keys:,} keys; {machine()}"
    )
    draw = np.random.default_rng(options.seed)
    of_key = hr.table("rows").by(hr.int64("key"))
    model = hr.Model("model", client="client", label="label", table="events")
    model.input("count", of_key.count(window="7d").log1p())
    model.input("sum", of_key.sum(hr.float64("value")).log1p())
    model.input("latest", of_key.latest(hr.float64("value")) * 2.0)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_days(root / "rows", options.days, options.rows, options.keys, options.seed)
        write_days(root / "events", options.days, options.events, options.keys, options.seed + 1)
        with Warehouse.open(WarehouseConfig(str(root / "home"))) as warehouse:
            for name in ("rows", "events"):
                register_table(warehouse, name, str(root / name), time_column="time")
            submit_model(warehouse, model)
            scratch, _ = refreshed_secs(warehouse)
            memos = queued(warehouse)
            print(f"from nothing                                  {scratch:8.2f} s            {memos:5d} memos above")

            def late(keys: np.ndarray) -> None:
                times = np.sort(draw.integers(0, DAY_US, len(keys))) + START_US + options.days // 3 * DAY_US
                path = root / f"late-{len(list(root.iterdir()))}.parquet"
                pq.write_table(rows_of(times, keys, draw), path)
                append_rows(warehouse, "rows", [str(path)])

            def measured(what: str) -> None:
                spent, changed = refreshed_secs(warehouse)
                above = queued(warehouse) if changed else 0
                computed = check_columns(warehouse, model)
                print(f"{what:<46}{spent:8.2f} s  {spent / scratch:7.1%}   {above:5d} memos above, {changed:3d} fragments with new values; "
                      f"computing alone {computed:.2f} s")  # fmt: skip

            late(np.full(options.late, options.keys + 1))
            measured(f"{options.late:,} late rows, no event's key")
            for what in ("any key, for the first time", "any key, again", "any key, again"):
                late(draw.integers(0, options.keys, options.late))
                measured(f"{options.late:,} late rows, {what}")
            delete_rows(warehouse, "rows", where=[("key", "7")], why="measured")
            measured("the rows of one key deleted")


if __name__ == "__main__":
    main()
