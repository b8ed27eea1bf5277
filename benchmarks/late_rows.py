"""Cost of 1 % late rows: the rows computed again, compared with whole partitions and whole tables.

    python -m benchmarks.late_rows [--rows 4000000] [--hours 48] [--late 0.01]

A table of hourly partitions is memoized for a model of four inputs. Then late rows of all hours are appended, a label
column is overlaid, a raw column is corrected in one partition, and events are deleted. After each change a worker runs
until the queue is empty; its work is counted in values (rows x components).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.harness import machine
from pipelines.worker.worker import WorkerConfig, run_worker
from transforms.expressions.expression import cross, float32, int64, text
from transforms.expressions.model import Model
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model
from warehouse.changes.append import append_rows
from warehouse.changes.deletion import delete_rows
from warehouse.changes.outcome import Change
from warehouse.changes.overlay import fix_columns, overlay_columns

START = datetime(2026, 1, 1, tzinfo=UTC)


def events(first: int, count: int, hour: int, random: np.random.Generator) -> pa.Table:
    """``count`` events of one hour, with ids from ``first`` on."""
    words = np.array([f"word{i}" for i in range(5000)])
    picked = random.integers(0, len(words), (2, count))
    query = pa.array(np.char.add(np.char.add(words[picked[0]], " "), words[picked[1]]))
    times = int((START + timedelta(hours=hour)).timestamp() * 1e6) + random.integers(0, 3_600_000_000, count)
    return pa.table({
        "event_id": pa.array(np.arange(first, first + count)),
        "time": pa.array(np.sort(times), pa.timestamp("us", tz="UTC")),
        "user_id": pa.array(random.integers(0, 1_000_000, count)),
        "query": query,
        "price": pa.array(random.random(count, np.float32)),
        "clicked": pa.array(random.random(count) < 0.1),
    })  # fmt: skip


def model() -> Model:
    """Four inputs that read three columns."""
    made = Model("ctr", client="ads", label="clicked", table="log")
    made.input("words", text("query").unigrams().hash_buckets(100_000))
    made.input("user", int64("user_id").hash_buckets(100_000))
    made.input("price", float32("price").fill_null(0.0).log1p())
    made.input("user_price", cross(int64("user_id"), float32("price").bucketize([0.2, 0.5, 0.9]), buckets=100_000))
    return made


def computed(warehouse: Warehouse) -> tuple[int, float]:
    """Run a worker until the queue is empty; return its computed values and its seconds."""
    begun = time.perf_counter()
    report = run_worker(warehouse, WorkerConfig("bench"), until_idle=True)
    return report.rows, time.perf_counter() - begun


def show(what: str, done: Change, found: tuple[int, float], inputs: int, total: int, touched: int) -> None:
    """Print one line for a change: computed values, and those of the touched partitions and of the table."""
    values, secs = found
    promised = sum(one.rows for one in done.recompute)
    assert values == promised, (values, promised)
    whole = total * inputs
    print(f"{what:<28}{done.rows:>10,} rows {values:>12,} values {values / whole:>8.2%}   "
          f"touched partitions {touched * inputs / whole:>7.1%}   everything 100 %   {secs:6.1f} s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--late", type=float, default=0.01)
    options = parser.parse_args()
    per_hour, late_per_hour = options.rows // options.hours, int(options.rows * options.late) // options.hours
    random = np.random.default_rng(7)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for hour in range(options.hours):
            day = START + timedelta(hours=hour)
            part = root / "log" / f"date={day:%Y-%m-%d}" / f"hour={day.hour:02d}" / "part.parquet"
            part.parent.mkdir(parents=True)
            pq.write_table(events(hour * per_hour, per_hour, hour, random), part, compression="zstd")
        with Warehouse.open(WarehouseConfig(str(root / "home"))) as warehouse:
            register_table(warehouse, "log", str(root / "log"), time_column="time")
            submit_model(warehouse, model())
            inputs, total = len(model().inputs), per_hour * options.hours
            values, secs = computed(warehouse)
            print(
                f"{'first time':<28}{total:>10,} rows {values:>12,} values {values / (total * inputs):>8.2%}   {secs:6.1f} s"
            )

            late = [events(10**9 + hour * late_per_hour, late_per_hour, hour, random) for hour in range(options.hours)]
            pq.write_table(pa.concat_tables(late), root / "late.parquet")
            done = append_rows(warehouse, "log", [str(root / "late.parquet")])
            total += done.rows
            show(f"{options.late:.0%} late rows", done, computed(warehouse), inputs, total, total)

            ids = random.choice(per_hour * options.hours, total // 20, replace=False)
            labels = pa.table({"event_id": np.sort(ids), "clicked": pa.array(np.ones(len(ids), bool))})
            pq.write_table(labels, root / "labels.parquet")
            done = overlay_columns(warehouse, "log", str(root / "labels.parquet"), on=["event_id"])
            show("5 % labels came later", done, computed(warehouse), inputs, total, total)

            fixed = pa.table({"event_id": np.arange(1000), "price": pa.array(np.full(1000, 2.0, np.float32))})
            pq.write_table(fixed, root / "fixed.parquet")
            end = START + timedelta(hours=1)
            done = fix_columns(warehouse, "log", str(root / "fixed.parquet"), on=["event_id"], why="cents", end=end)
            show("a price fixed in one hour", done, computed(warehouse), inputs, total, per_hour + late_per_hour)

            done = delete_rows(warehouse, "log", where=[("user_id", "77")], why="asked for")
            show("one user deleted", done, computed(warehouse), inputs, total, total)


if __name__ == "__main__":
    main()
