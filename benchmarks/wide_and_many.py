"""Time of a log with many columns, and of a log with many partitions, by command.

    python -m benchmarks.wide_and_many [--inputs 5000] [--days 4000] [--rows 20000]

Two warehouses in a temporary folder, each command in a process of its own, as a user runs it:

* a Parquet file of 100 rows with a column for each input, half of them text, and a model that hashes every column: seconds of
  ``table add``, ``model submit``, ``work --until-idle`` and ``model read``;
* a CSV log of ``--rows`` rows in ``--days`` daily partitions, and one of as many rows in a tenth of them: seconds of
  ``table import``, and milliseconds per partition, from the difference.

CPU seconds of the commands and their children stand beside the wall's: other work on the machine stretches the wall.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.support.harness import machine

_ROWS = 100
_START = datetime(2003, 1, 1)


def write_wide(folder: Path, inputs: int) -> None:
    """The file with a column for each input, and the model that reads all."""
    rng = np.random.default_rng(1)
    times = pa.array([datetime(2026, 3, 1, 0, 0, row % 60) for row in range(_ROWS)], pa.timestamp("us"))
    columns = {"time": times, "label": pa.array(rng.integers(0, 2, _ROWS).astype(np.float32))}
    for i in range(inputs):
        values = rng.integers(0, 1000, _ROWS)
        columns[f"c{i}"] = pa.array(values if i % 2 else [f"w{value}" for value in values])
    place = folder / "log" / "date=2026-03-01"
    place.mkdir(parents=True)
    parquet.write_table(pa.table(columns), place / "part.parquet")
    lines = ["import headrace as hr", "model = hr.Model('wide', client='ads', label=hr.float32('label'))"]
    kinds = ("text", "int64")
    lines += [f"model.input('x{i}', hr.{kinds[i % 2]}('c{i}').hash_buckets(1000))" for i in range(inputs)]
    (folder / "model.py").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_many(folder: Path, days: int, rows: int) -> None:
    """A CSV log with rows of every day."""
    draw = random.Random(1)
    with (folder / f"log{days}.csv").open("w", encoding="utf-8") as file:
        file.write("time,user,item,label\n")
        for row in range(rows):
            at = _START + timedelta(days=row * days // rows, seconds=draw.randrange(86_400))
            file.write(f"{at},{draw.randrange(5000)},{draw.randrange(1000)},{draw.randrange(2)}\n")


def run(folder: Path, home: str, *command: str) -> tuple[float, float]:
    """Wall and CPU seconds of a command, with its children. Raises :class:`subprocess.CalledProcessError`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    environment = {**os.environ, "HEADRACE_HOME": str(folder / home)}
    subprocess.run(
        [sys.executable, "-m", "headrace", *command], cwd=folder, env=environment, check=True, capture_output=True
    )
    wall_secs = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_secs, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print both."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--inputs", type=int, default=5000)
    options.add_argument("--days", type=int, default=4000)
    options.add_argument("--rows", type=int, default=20_000)
    chosen = options.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_wide(folder, chosen.inputs)
        print(f"{chosen.inputs:,} inputs, {_ROWS} rows        wall   CPU seconds")
        for words in (
            ("table", "add", "log", "log", "--time-column", "time"),
            ("model", "submit", "model.py", "--table", "log"),
            ("work", "--until-idle"),
            ("model", "read", "wide", "--output", "rows.parquet"),
        ):
            wall_secs, cpu_secs = run(folder, "wide", *words)
            print(f"  {' '.join(words[:2]):24} {wall_secs:8.1f} {cpu_secs:8.1f}")
        found = {}
        print(f"import of {chosen.rows:,} rows       wall   CPU seconds")
        for days in (chosen.days // 10, chosen.days):
            write_many(folder, days, chosen.rows)
            run(folder, f"many{days}", "table", "infer", f"log{days}.csv", "--output", f"{days}.json")
            run(folder, f"many{days}", "init")
            found[days] = run(
                folder, f"many{days}", "table", "import", "log", f"log{days}.csv", "--schema", f"{days}.json"
            )
            print(f"  {days:,} daily partitions  {found[days][0]:8.1f} {found[days][1]:8.1f}")
        (few, few_secs), (many, many_secs) = found.items()
        wall_ms, cpu_ms = ((many_secs[k] - few_secs[k]) / (many - few) * 1e3 for k in (0, 1))
        print(f"  per partition          {wall_ms:8.1f} {cpu_ms:8.1f} milliseconds")


if __name__ == "__main__":
    main()
