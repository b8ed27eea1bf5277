"""The first minute: ``import headrace as hr`` and ``hr.try_`` on 1,000 rows in a fresh process, beyond the imports of numpy and pyarrow.

    python -m benchmarks.try_frame [--rounds 10]

Both sides are fresh processes that make an Arrow table of 1,000 rows; one also evaluates a model of four inputs on it. Compiled kernels are in numba's cache, as
after any first use of an installation. Printed are the medians of the processor seconds of both, their difference, and its range over the rounds.

Target: at most 0.6 s of processor time.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from benchmarks.support.harness import machine

TARGET_SECS = 0.6
_FRAME = """
import io
import resource
import numpy as np
import pyarrow.csv as csv
lines = [f"red shoes {k % 17},Shoes red {k % 31},{k}.5,c{k % 5}" for k in range(1000)]
frame = csv.read_csv(io.BytesIO("\\n".join(["query,title,price,category", *lines]).encode()))  # of Python's values pyarrow imports pandas
"""
_TRIED = """
import headrace as hr
query, title, category = hr.text("query"), hr.text("title"), hr.text("category")
model = hr.Model("first", client="search", label="clicked")
model.input("overlap", hr.concat(query.unigrams() & title.unigrams(), category.unigrams()).hash_buckets(1_000_000))
model.input("query", query.lower().hash_buckets(1000))
model.input("category", category.hash_buckets(100))
model.input("price", hr.float64("price").fill_null(0).log1p())
assert hr.try_(model, frame).num_rows == 1000
"""
_PRINTED = """
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""


def cpu_secs(code: str) -> float:
    """The processor seconds of a fresh process."""
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def main() -> int:
    """Measure; the exit status is 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    print(machine())
    cpu_secs(_FRAME + _TRIED + _PRINTED)  # fills the cache
    pairs = [(cpu_secs(_FRAME + _PRINTED), cpu_secs(_FRAME + _TRIED + _PRINTED)) for _ in range(rounds)]
    plain, tried = (statistics.median(column) for column in zip(*pairs, strict=True))
    more = [second - first for first, second in pairs]
    print(f"imports of numpy and pyarrow and a table: {plain:.2f} s of CPU; with hr.try_: {tried:.2f} s")
    print(f"beyond: {statistics.median(more):.2f} s ({min(more):.2f} to {max(more):.2f}); target {TARGET_SECS} s")
    return int(statistics.median(more) > TARGET_SECS)


if __name__ == "__main__":
    sys.exit(main())
