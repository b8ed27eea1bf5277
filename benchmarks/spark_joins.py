"""Aggregates over windows before each event, by Headrace and by plain Spark SQL on this machine, from the same Parquet files, in one run.

    make bench-spark      (or: python -m benchmarks.spark_joins [--events N] [--rows N] [--keys N] [--skew S] [--rounds N] [--seed N])

Count, sum, mean and last value of one and of seven days. Each side reads two Parquet files and writes one; both use all cores, rounds alternate, and the first run of each side
is left out, so that neither compilation counts. The start of Spark is printed apart. All values are compared.

This is not Chronon, whose jars could not be had when this was written. ``hops`` is what the comments of its ``SawtoothAggregator`` describe, as Spark SQL: a window
of 12 hours to 12 days begins at a full hour, which is ``hop="1h"`` here; Chronon's own code may take more or less time. By its source its values are these but for counts and sums
without rows, which are null. Its times are in milliseconds, as all of this log are. How many values the hop changes is printed.

Evenly distributed keys have few rows each. With Zipf-distributed ones Spark's exact forms take time by the pairs of an event and a row with one key, so these have a fifth of
the events and rows.

Target, as in the issue for Chronon: 10 times as fast.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks.support.harness import THREADS, Side, cpu_secs, machine, measure
from benchmarks.support.keyed_log import LogSize, write_log
from benchmarks.support.spark_environment import FOLDER, SPARK, install
from transforms.joins.definition import JoinDefinition
from transforms.joins.evaluation import joined_columns

WINDOWS = ("1d", "7d")
#: What Spark can be asked for, with the hop of windows.
FORMS: Mapping[str, str | None] = {"ranges": None, "frames": None, "hops": "1h"}
HEADRACE = "Headrace"


def definitions(hop: str | None) -> dict[str, JoinDefinition]:
    """The joined columns by name."""
    rows, value = hr.table("rows").by(hr.int64("key")), hr.int64("value")
    columns = {}
    for window in WINDOWS:
        columns |= {
            f"count_{window}": rows.count(window=window, hop=hop),
            f"sum_{window}": rows.sum(value, window=window, hop=hop),
            f"mean_{window}": rows.mean(value, window=window, hop=hop),
            f"last_{window}": rows.last(1, value, window=window, hop=hop),
        }
    return {name: column.node.definition for name, column in columns.items()}  # type: ignore[attr-defined]


def join(folder: Path, hop: str | None) -> None:
    """Write ``headrace.parquet``: each event with its joined columns."""
    events, rows = (pq.read_table(folder / f"{name}.parquet") for name in ("events", "rows"))
    found = joined_columns(definitions(hop), events, "time", rows, "time", threads=THREADS)
    pq.write_table(pa.table({"event": events["event"], **found}), folder / "headrace.parquet")


class Spark:
    """A Spark in a process of its own, for the files of a folder. ``start_secs``: until it had answered its first query."""

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "spark.log"
        command = [str(FOLDER / "bin" / "python"), "-m", "benchmarks.support.side_of_spark", str(folder), str(THREADS)]
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)  # fmt: skip
        self.start_secs = self._answer()

    def run(self, form: str) -> None:
        """Write ``FORM.parquet``."""
        asked: IO[str] | None = self._process.stdin
        assert asked is not None
        asked.write(f"{form}\n")
        asked.flush()
        self._answer()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return float(json.loads(line)["secs"])
        status = self._process.wait()
        raise SystemExit(f"Spark ended with status {status}: {self._errors.read_text()[-2000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def values_of(path: Path) -> dict[str, list[object]]:
    """Columns by name, in the order of events; of lists their only item, None without one."""
    found = pq.read_table(path).sort_by("event")
    return {
        name: [value[0] if value else None for value in found[name].to_pylist()]
        if pa.types.is_list(found.schema.field(name).type) or pa.types.is_large_list(found.schema.field(name).type)
        else found[name].to_pylist()
        for name in found.column_names
    }


def different(some: Mapping[str, Sequence[object]], others: Mapping[str, Sequence[object]]) -> dict[str, int]:
    """How many values differ, by column."""
    return {
        name: sum(one != other for one, other in zip(values, others[name], strict=True))
        for name, values in some.items()
        if name != "event"
    }


def print_times(ours: Callable[[], object], theirs: Callable[[], object], form: str, rounds: int) -> None:
    """Print wall-clock and processor seconds; the latter, of all processes, say more on a machine that others use."""
    used: dict[str, list[float]] = {HEADRACE: [], f"Spark, {form}": []}

    def run(name: str, call: Callable[[], object]) -> None:
        begun = cpu_secs()
        call()
        used[name].append(cpu_secs() - begun)

    calls = zip(used, (ours, theirs), strict=True)
    measured = measure([Side(name, partial(run, name, call), call) for name, call in calls], rounds, lambda _: None)
    for side in measured:
        spread = f"({min(side.secs):.2f} to {max(side.secs):.2f})"
        print(
            f"  {side.name:<14} {side.median_secs:7.2f} s {spread}, {statistics.median(used[side.name]):.2f} s of processors"
        )
    wall = [other / own for own, other in zip(*(side.secs for side in measured), strict=True)]
    cpu = [other / own for own, other in zip(*used.values(), strict=True)]
    print(
        f"  Headrace is {statistics.median(wall):.1f}x as fast ({min(wall):.1f} to {max(wall):.1f}); {statistics.median(cpu):.1f}x by processor seconds"
    )


def compare(size: LogSize, forms: Sequence[str], rounds: int, seed: int) -> None:
    """Print the times of all forms, and compare the values."""
    print(f"\n{size}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder, size, np.random.default_rng(seed))
        with Spark(folder) as spark:
            print(f"  Spark's first answer after {spark.start_secs:.1f} s")
            for form in forms:
                print_times(partial(join, folder, FORMS[form]), partial(spark.run, form), form, rounds)
                found = values_of(folder / "headrace.parquet")
                differing = different(found, values_of(folder / f"{form}.parquet"))
                values = size.events * len(differing)
                print(f"  equal values: {values - sum(differing.values()):,} of {values:,}", flush=True)
                assert not any(differing.values()), differing
                if FORMS[form]:
                    join(folder, None)
                    moved = different(found, values_of(folder / "headrace.parquet"))
                    print(f"  the hop changes {sum(moved.values()) / values:.1%} of the values: {moved}", flush=True)


def main() -> None:
    """Print both sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--skew", type=float, default=1.2, help="the exponent of Zipf-distributed keys")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if why := install(FOLDER):
        print(f"Spark is left out: {why}")
        return
    print(f"count, sum, mean and last value of {' and '.join(WINDOWS)}, Parquet to Parquet, {SPARK}; {machine()}")
    even = LogSize(options.events, options.rows, options.keys)
    compare(even, tuple(FORMS), options.rounds, options.seed)
    skewed = replace(even, skew=options.skew)
    compare(skewed, ("hops",), options.rounds, options.seed)
    fifth = replace(skewed, events=options.events // 5, rows=options.rows // 5)
    compare(fifth, ("ranges", "frames"), options.rounds, options.seed)


if __name__ == "__main__":
    main()
